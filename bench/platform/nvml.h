// What the driver says of a GPU's state: clocks, temperature, power, why its clocks are held down, who else is on it.
//
// NVML's library comes with the driver and is opened at run time, so that one program runs with and without a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace noisefloor {

// A value that this GPU or driver does not report is empty.
struct GpuState {
  std::optional<double> sm_clock_mhz;
  std::optional<double> memory_clock_mhz;
  std::optional<double> temperature_c;
  std::optional<double> power_w;
  std::optional<std::uint64_t> clock_event_reasons;  // a mask of ClockEvent
  std::optional<int> compute_processes;              // with a context on this GPU, this process among them
};

// What a GPU is and how it was set up, which a run's times depend on and which does not change by itself.
struct GpuDescription {
  std::string uuid;  // "GPU-4f2c...", as nvidia-smi -L prints it; empty where it is not reported
  std::optional<double> power_limit_w, power_limit_default_w;  // in force, and as delivered
  std::optional<double> sm_clock_max_mhz, memory_clock_max_mhz;
  std::optional<double> sm_clock_application_mhz, memory_clock_application_mhz;
  std::optional<bool> ecc, mig;
  std::optional<int> pcie_generation, pcie_lanes;  // the most of this GPU in this slot; the lanes in use
};

// Why clocks are not at their highest: the bits of nvmlClocksEventReason* in the NVML API reference.
enum ClockEvent : std::uint64_t {
  kClockGpuIdle = 0x001,
  kClockApplicationsSetting = 0x002,
  kClockSwPowerCap = 0x004,
  kClockHwSlowdown = 0x008,
  kClockSyncBoost = 0x010,
  kClockSwThermal = 0x020,
  kClockHwThermal = 0x040,
  kClockHwPowerBrake = 0x080,
  kClockDisplaySetting = 0x100,
};

// The reasons that slow a measurement down without having been asked for: power and heat.
inline constexpr std::uint64_t kClockThrottle =
    kClockSwPowerCap | kClockHwSlowdown | kClockSwThermal | kClockHwThermal | kClockHwPowerBrake;

// "sw_power_cap|hw_thermal"; "none" for 0; bits without a name as hexadecimal.
std::string clock_events_text(std::uint64_t reasons);

class GpuMonitor {
 public:
  // Of the GPU with this PCI bus id ("0000:17:00.0", as PlatformDescription has it; empty: of a host). Never throws:
  // where NVML cannot be had, `available` is false and `reason` says why.
  explicit GpuMonitor(const std::string& pci_bus_id);

  bool available() const { return device_ != nullptr; }
  const std::string& reason() const { return reason_; }          // empty when available
  const std::string& driver_version() const { return driver_; }  // "580.95.05"; empty when not available
  GpuState read() const;                                         // every field empty when not available
  std::optional<std::uint64_t> clock_event_reasons() const;      // that field alone: asked for after each batch
  GpuDescription describe() const;                               // the same

 private:
  void* device_ = nullptr;  // NVML's
  std::string reason_, driver_;
};

}  // namespace noisefloor
