// The few functions and constants of NVML that this project uses, declared here because the CUDA toolkit does not ship
// nvml.h. Names, values and layouts: NVML API Reference Guide, https://docs.nvidia.com/deploy/nvml-api/.
#pragma once

namespace noisefloor::nvml {

struct Device;  // nvmlDevice_t is a pointer to it
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInsufficientSize = 7;

inline constexpr int kClockSm = 1;   // NVML_CLOCK_SM
inline constexpr int kClockMem = 2;  // NVML_CLOCK_MEM
inline constexpr int kTemperatureGpu = 0;

using Init = Result (*)();                                                          // nvmlInit_v2
using Shutdown = Result (*)();                                                      // nvmlShutdown
using ErrorString = const char* (*)(Result);                                        // nvmlErrorString
using SystemGetDriverVersion = Result (*)(char* version, unsigned length);          // nvmlSystemGetDriverVersion
using DeviceGetHandleByPciBusId = Result (*)(const char* bus_id, Device** device);  // ..._v2
using DeviceGetClockInfo = Result (*)(Device*, int clock, unsigned* mhz);
// nvmlDeviceGetMaxClockInfo, nvmlDeviceGetApplicationsClock: as nvmlDeviceGetClockInfo.
using DeviceGetUUID = Result (*)(Device*, char* uuid, unsigned length);
// nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit
using DeviceGetPowerLimit = Result (*)(Device*, unsigned* milliwatts);
using DeviceGetEccMode = Result (*)(Device*, int* current, int* pending);            // 1: on
using DeviceGetMigMode = Result (*)(Device*, unsigned* current, unsigned* pending);  // 1: on
// nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkWidth
using DeviceGetPcieLink = Result (*)(Device*, unsigned* value);
using DeviceGetTemperature = Result (*)(Device*, int sensor, unsigned* celsius);
using DeviceGetPowerUsage = Result (*)(Device*, unsigned* milliwatts);
// nvmlDeviceGetCurrentClocksEventReasons; nvmlDeviceGetCurrentClocksThrottleReasons before driver 535.
using DeviceGetClocksEventReasons = Result (*)(Device*, unsigned long long* reasons);
// ..._v3; with *count 0 it returns kInsufficientSize and the count, or kSuccess when there is none.
using DeviceGetComputeRunningProcesses = Result (*)(Device*, unsigned* count, void* infos);

}  // namespace noisefloor::nvml
