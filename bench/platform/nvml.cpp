#include "bench/platform/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <type_traits>

// The few functions and constants of NVML that this project uses, declared here because the CUDA toolkit does not ship
// nvml.h. Names, values and layouts: NVML API Reference Guide, https://docs.nvidia.com/deploy/nvml-api/.
namespace noisefloor {
namespace {

struct NvmlDevice;  // nvmlDevice_t is a pointer to it
constexpr int kNvmlSuccess = 0, kNvmlInsufficientSize = 7;
constexpr int kClockSm = 1, kClockMem = 2;  // NVML_CLOCK_SM, NVML_CLOCK_MEM
constexpr int kTemperatureGpu = 0;

using DeviceValue = int(NvmlDevice*, unsigned* value);
using DeviceValueOf = int(NvmlDevice*, int which, unsigned* value);         // of a clock, of a sensor
using DeviceMode = int(NvmlDevice*, unsigned* current, unsigned* pending);  // 1: on

// X(member, its type, the library's name). Each but the first four may be missing from an old driver; its value is then
// not reported. `processes` with *count 0 returns kNvmlInsufficientSize and the count, or kNvmlSuccess where there is
// none. The PCIe generation in use falls when the GPU is idle; a slot that is too old or too narrow shows in these two.
#define NOISEFLOOR_NVML(X)                                                                                \
  X(init, int(), nvmlInit_v2)                                                                             \
  X(error_string, const char*(int), nvmlErrorString)                                                      \
  X(driver_version, int(char* version, unsigned length), nvmlSystemGetDriverVersion)                      \
  X(handle_by_bus_id, int(const char* bus_id, NvmlDevice** device), nvmlDeviceGetHandleByPciBusId_v2)     \
  X(clock_info, DeviceValueOf, nvmlDeviceGetClockInfo)                                                    \
  X(max_clock, DeviceValueOf, nvmlDeviceGetMaxClockInfo)                                                  \
  X(application_clock, DeviceValueOf, nvmlDeviceGetApplicationsClock)                                     \
  X(temperature, DeviceValueOf, nvmlDeviceGetTemperature)                                                 \
  X(power_usage, DeviceValue, nvmlDeviceGetPowerUsage)                                                    \
  X(power_limit, DeviceValue, nvmlDeviceGetEnforcedPowerLimit)                                            \
  X(default_power_limit, DeviceValue, nvmlDeviceGetPowerManagementDefaultLimit)                           \
  X(pcie_generation, DeviceValue, nvmlDeviceGetMaxPcieLinkGeneration)                                     \
  X(pcie_width, DeviceValue, nvmlDeviceGetCurrPcieLinkWidth)                                              \
  X(ecc_mode, DeviceMode, nvmlDeviceGetEccMode)                                                           \
  X(mig_mode, DeviceMode, nvmlDeviceGetMigMode)                                                           \
  X(uuid, int(NvmlDevice*, char* uuid, unsigned length), nvmlDeviceGetUUID)                               \
  X(processes, int(NvmlDevice*, unsigned* count, void* infos), nvmlDeviceGetComputeRunningProcesses_v3)   \
  X(event_reasons, int(NvmlDevice*, unsigned long long* reasons), nvmlDeviceGetCurrentClocksEventReasons) \
  X(throttle_reasons, int(NvmlDevice*, unsigned long long* reasons), nvmlDeviceGetCurrentClocksThrottleReasons)

// The library, opened and initialised once for the life of the process, and never unloaded: the driver cleans up at
// exit.
struct Nvml {
#define NOISEFLOOR_NVML_MEMBER(member, type, name) std::add_pointer_t<type> member = nullptr;
  NOISEFLOOR_NVML(NOISEFLOOR_NVML_MEMBER)
  std::string reason;  // why it cannot be used; empty when it can
  std::string driver;

  Nvml() {
    void* const handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      reason = fmt::format("NVML is not there, so no NVIDIA driver is installed ({})", dlerror());
      return;
    }
#define NOISEFLOOR_NVML_LOAD(member, type, name) \
  member = reinterpret_cast<std::add_pointer_t<type>>(dlsym(handle, #name));
    NOISEFLOOR_NVML(NOISEFLOOR_NVML_LOAD)
    if (event_reasons == nullptr) event_reasons = throttle_reasons;  // its name before driver 535
    if (init == nullptr || error_string == nullptr || handle_by_bus_id == nullptr || driver_version == nullptr) {
      reason = "this driver's NVML is too old: it lacks nvmlInit_v2 or its companions";
    } else if (const int result = init(); result != kNvmlSuccess) {
      reason = fmt::format("NVML does not start: {}", error_string(result));
    } else {
      std::array<char, 81> version{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
      if (driver_version(version.data(), 80) == kNvmlSuccess) driver = version.data();
    }
  }
};

const Nvml& nvml() {
  static const Nvml& instance = *new Nvml;
  return instance;
}

// What a function says behind its other arguments; nothing where it is missing or fails.
template <class Value = unsigned, class Function, class... Arguments>
std::optional<Value> asked(Function* function, Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != kNvmlSuccess) return std::nullopt;
  return value;
}

std::optional<double> watts(DeviceValue* function, NvmlDevice* device) {
  const auto milliwatts = asked(function, device);
  return milliwatts ? std::optional(*milliwatts / 1000.0) : std::nullopt;
}

std::optional<bool> is_on(DeviceMode* function, NvmlDevice* device) {
  unsigned current = 0, pending = 0;
  if (function == nullptr || function(device, &current, &pending) != kNvmlSuccess) return std::nullopt;
  return current == 1;
}

struct EventName {
  ClockEvent bit;
  const char* name;
};
constexpr std::array kEventNames = {
    EventName{kClockGpuIdle, "gpu_idle"},
    EventName{kClockApplicationsSetting, "applications_clocks"},
    EventName{kClockSwPowerCap, "sw_power_cap"},
    EventName{kClockHwSlowdown, "hw_slowdown"},
    EventName{kClockSyncBoost, "sync_boost"},
    EventName{kClockSwThermal, "sw_thermal"},
    EventName{kClockHwThermal, "hw_thermal"},
    EventName{kClockHwPowerBrake, "hw_power_brake"},
    EventName{kClockDisplaySetting, "display_clocks"},
};

}  // namespace

std::string clock_events_text(std::uint64_t reasons) {
  if (reasons == 0) return "none";
  std::string text;
  const auto append = [&text](const std::string& part) { text += (text.empty() ? "" : "|") + part; };
  for (const EventName& event : kEventNames) {
    if ((reasons & event.bit) == 0) continue;
    append(event.name);
    reasons &= ~std::uint64_t{event.bit};
  }
  if (reasons != 0) append(fmt::format("{:#x}", reasons));
  return text;
}

GpuMonitor::GpuMonitor(const std::string& pci_bus_id) {
  reason_ = pci_bus_id.empty() ? "a host is no GPU" : nvml().reason;
  if (!reason_.empty()) return;
  NvmlDevice* device = nullptr;
  if (const int result = nvml().handle_by_bus_id(pci_bus_id.c_str(), &device); result != kNvmlSuccess) {
    reason_ = fmt::format("NVML does not know the GPU at {}: {}", pci_bus_id, nvml().error_string(result));
    return;
  }
  device_ = device;
  driver_ = nvml().driver;
}

GpuState GpuMonitor::read() const {
  GpuState state;
  if (!available()) return state;
  auto* const device = static_cast<NvmlDevice*>(device_);
  state.sm_clock_mhz = asked(nvml().clock_info, device, kClockSm);
  state.memory_clock_mhz = asked(nvml().clock_info, device, kClockMem);
  state.temperature_c = asked(nvml().temperature, device, kTemperatureGpu);
  state.power_w = watts(nvml().power_usage, device);
  state.clock_event_reasons = clock_event_reasons();
  if (nvml().processes != nullptr) {
    unsigned count = 0;
    const int result = nvml().processes(device, &count, nullptr);
    if (result == kNvmlSuccess || result == kNvmlInsufficientSize) state.compute_processes = static_cast<int>(count);
  }
  return state;
}

std::optional<std::uint64_t> GpuMonitor::clock_event_reasons() const {
  if (!available()) return std::nullopt;
  return asked<unsigned long long>(nvml().event_reasons, static_cast<NvmlDevice*>(device_));
}

GpuDescription GpuMonitor::describe() const {
  GpuDescription gpu;
  if (!available()) return gpu;
  auto* const device = static_cast<NvmlDevice*>(device_);
  std::array<char, 97> uuid{};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE is 96
  if (nvml().uuid != nullptr && nvml().uuid(device, uuid.data(), 96) == kNvmlSuccess) gpu.uuid = uuid.data();
  gpu.sm_clock_max_mhz = asked(nvml().max_clock, device, kClockSm);
  gpu.memory_clock_max_mhz = asked(nvml().max_clock, device, kClockMem);
  gpu.sm_clock_application_mhz = asked(nvml().application_clock, device, kClockSm);
  gpu.memory_clock_application_mhz = asked(nvml().application_clock, device, kClockMem);
  gpu.power_limit_w = watts(nvml().power_limit, device);
  gpu.power_limit_default_w = watts(nvml().default_power_limit, device);
  gpu.ecc = is_on(nvml().ecc_mode, device);
  gpu.mig = is_on(nvml().mig_mode, device);
  gpu.pcie_generation = asked(nvml().pcie_generation, device);
  gpu.pcie_lanes = asked(nvml().pcie_width, device);
  return gpu;
}

}  // namespace noisefloor
