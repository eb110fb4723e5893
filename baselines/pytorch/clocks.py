"""SM clock and throttle reasons from NVML, which comes with the driver."""

import ctypes

CLOCK_SM = 1
# Bits of nvmlClocksEventReason* in the NVML API reference, named as bench/platform/nvml.cpp names them.
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
}
# kClockThrottle of bench/platform/nvml.h: power and heat. Being idle, or held at a clock that someone asked for, is no throttling.
THROTTLE = 0x004 | 0x008 | 0x020 | 0x040 | 0x080
# A power cap is part of what a dense product can do, so it does not disqualify (bench/measure/case_runner.cpp).
DISQUALIFYING = THROTTLE & ~0x004


def reasons_text(mask):
    """'sw_power_cap|hw_thermal'; 'none' for 0."""
    return "|".join(name for bit, name in REASONS.items() if mask & bit) or "none"


class Clocks:
    """read() gives (SM clock in MHz, mask of THROTTLE bits), each None where it is not known."""

    def __init__(self, uuid):
        self._nvml = None
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        handle = ctypes.c_void_p()
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)) == 0:
            self._nvml, self._handle = nvml, handle

    def read(self):
        if self._nvml is None:
            return None, None
        clock, mask = ctypes.c_uint(), ctypes.c_ulonglong()
        known = self._nvml.nvmlDeviceGetClockInfo(self._handle, CLOCK_SM, ctypes.byref(clock)) == 0
        mhz = float(clock.value) if known else None
        if self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(mask)) != 0:
            return mhz, None
        return mhz, mask.value & THROTTLE
