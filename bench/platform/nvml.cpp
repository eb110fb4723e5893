#include "bench/platform/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <utility>

// The few functions and constants of NVML that this project uses, declared here because the CUDA toolkit does not ship
// nvml.h. Names, values and layouts: NVML API Reference Guide, https://docs.nvidia.com/deploy/nvml-api/.
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

namespace noisefloor {
namespace {

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

// The library, opened and initialised once for the life of the process.
struct Library {
  std::string reason;  // why it cannot be used; empty when it can
  std::string driver;
  nvml::ErrorString error_string = nullptr;
  nvml::DeviceGetHandleByPciBusId handle_by_bus_id = nullptr;
  nvml::DeviceGetClockInfo clock_info = nullptr;
  nvml::DeviceGetTemperature temperature = nullptr;
  nvml::DeviceGetPowerUsage power_usage = nullptr;
  nvml::DeviceGetClocksEventReasons event_reasons = nullptr;
  nvml::DeviceGetComputeRunningProcesses processes = nullptr;
  nvml::DeviceGetUUID uuid = nullptr;
  nvml::DeviceGetClockInfo max_clock = nullptr, application_clock = nullptr;
  nvml::DeviceGetPowerLimit power_limit = nullptr, default_power_limit = nullptr;
  nvml::DeviceGetEccMode ecc_mode = nullptr;
  nvml::DeviceGetMigMode mig_mode = nullptr;
  nvml::DeviceGetPcieLink pcie_generation = nullptr, pcie_width = nullptr;

  Library() {
    void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      reason = fmt::format("NVML is not there, so no NVIDIA driver is installed ({})", dlerror());
      return;
    }
    const auto load = [handle]<class Function>(Function& function, const char* name) {
      function = reinterpret_cast<Function>(dlsym(handle, name));
      return function != nullptr;
    };
    nvml::Init init = nullptr;
    nvml::SystemGetDriverVersion driver_version = nullptr;
    if (!load(init, "nvmlInit_v2") || !load(error_string, "nvmlErrorString") ||
        !load(handle_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !load(driver_version, "nvmlSystemGetDriverVersion")) {
      reason = "this driver's NVML is too old: it lacks nvmlInit_v2 or its companions";
      return;
    }
    // Each of these may be missing from an old driver; its value is then not reported.
    load(clock_info, "nvmlDeviceGetClockInfo");
    load(temperature, "nvmlDeviceGetTemperature");
    load(power_usage, "nvmlDeviceGetPowerUsage");
    load(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    load(uuid, "nvmlDeviceGetUUID");
    load(max_clock, "nvmlDeviceGetMaxClockInfo");
    load(application_clock, "nvmlDeviceGetApplicationsClock");
    load(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    load(default_power_limit, "nvmlDeviceGetPowerManagementDefaultLimit");
    load(ecc_mode, "nvmlDeviceGetEccMode");
    load(mig_mode, "nvmlDeviceGetMigMode");
    // The generation in use falls when the GPU is idle; a slot that is too old or too narrow shows in these two.
    load(pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
    load(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
    if (!load(event_reasons, "nvmlDeviceGetCurrentClocksEventReasons"))
      load(event_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");

    if (const nvml::Result result = init(); result != nvml::kSuccess) {
      reason = fmt::format("NVML does not start: {}", error_string(result));
      return;
    }
    std::array<char, 81> version{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
    if (driver_version(version.data(), 80) == nvml::kSuccess) driver = version.data();
  }
};

// Never unloaded: the driver cleans up at exit, and static destruction order stays no concern.
const Library& library() {
  static const Library* instance = new Library;
  return *instance;
}

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

struct GpuMonitor::State {
  nvml::Device* device = nullptr;
  std::string reason;
  std::string driver;
};

GpuMonitor::GpuMonitor() : state_(std::make_unique<State>()) {}
GpuMonitor::~GpuMonitor() = default;
GpuMonitor::GpuMonitor(GpuMonitor&&) noexcept = default;
GpuMonitor& GpuMonitor::operator=(GpuMonitor&&) noexcept = default;

GpuMonitor::GpuMonitor(const std::string& pci_bus_id) : GpuMonitor() {
  const Library& api = library();
  if (!api.reason.empty()) {
    state_->reason = api.reason;
    return;
  }
  const nvml::Result result = api.handle_by_bus_id(pci_bus_id.c_str(), &state_->device);
  if (result != nvml::kSuccess) {
    state_->device = nullptr;
    state_->reason = fmt::format("NVML does not know the GPU at {}: {}", pci_bus_id, api.error_string(result));
    return;
  }
  state_->driver = api.driver;
}

GpuMonitor GpuMonitor::unavailable(std::string reason) {
  GpuMonitor monitor;
  monitor.state_->reason = std::move(reason);
  return monitor;
}

bool GpuMonitor::available() const {
  return state_->device != nullptr;
}
const std::string& GpuMonitor::reason() const {
  return state_->reason;
}
const std::string& GpuMonitor::driver_version() const {
  return state_->driver;
}

GpuState GpuMonitor::read() const {
  GpuState state;
  if (!available()) return state;
  const Library& api = library();
  nvml::Device* const device = state_->device;
  unsigned value = 0;
  if (api.clock_info != nullptr) {
    if (api.clock_info(device, nvml::kClockSm, &value) == nvml::kSuccess) state.sm_clock_mhz = value;
    if (api.clock_info(device, nvml::kClockMem, &value) == nvml::kSuccess) state.memory_clock_mhz = value;
  }
  if (api.temperature != nullptr && api.temperature(device, nvml::kTemperatureGpu, &value) == nvml::kSuccess)
    state.temperature_c = value;
  if (api.power_usage != nullptr && api.power_usage(device, &value) == nvml::kSuccess) state.power_w = value / 1000.0;
  state.clock_event_reasons = clock_event_reasons();
  if (api.processes != nullptr) {
    unsigned count = 0;
    const nvml::Result result = api.processes(device, &count, nullptr);
    if (result == nvml::kSuccess || result == nvml::kInsufficientSize)
      state.compute_processes = static_cast<int>(count);
  }
  return state;
}

std::optional<std::uint64_t> GpuMonitor::clock_event_reasons() const {
  if (!available() || library().event_reasons == nullptr) return std::nullopt;
  unsigned long long reasons = 0;
  if (library().event_reasons(state_->device, &reasons) != nvml::kSuccess) return std::nullopt;
  return reasons;
}

GpuDescription GpuMonitor::describe() const {
  GpuDescription gpu;
  if (!available()) return gpu;
  const Library& api = library();
  nvml::Device* const device = state_->device;
  std::array<char, 97> uuid{};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE is 96
  if (api.uuid != nullptr && api.uuid(device, uuid.data(), 96) == nvml::kSuccess) gpu.uuid = uuid.data();

  const auto clock = [&](nvml::DeviceGetClockInfo get, int which, std::optional<double>& mhz) {
    unsigned value = 0;
    if (get != nullptr && get(device, which, &value) == nvml::kSuccess) mhz = value;
  };
  clock(api.max_clock, nvml::kClockSm, gpu.sm_clock_max_mhz);
  clock(api.max_clock, nvml::kClockMem, gpu.memory_clock_max_mhz);
  clock(api.application_clock, nvml::kClockSm, gpu.sm_clock_application_mhz);
  clock(api.application_clock, nvml::kClockMem, gpu.memory_clock_application_mhz);
  const auto power = [&](nvml::DeviceGetPowerLimit get, std::optional<double>& watts) {
    unsigned milliwatts = 0;
    if (get != nullptr && get(device, &milliwatts) == nvml::kSuccess) watts = milliwatts / 1000.0;
  };
  power(api.power_limit, gpu.power_limit_w);
  power(api.default_power_limit, gpu.power_limit_default_w);
  int ecc = 0, ecc_pending = 0;
  if (api.ecc_mode != nullptr && api.ecc_mode(device, &ecc, &ecc_pending) == nvml::kSuccess) gpu.ecc = ecc == 1;
  unsigned mig = 0, mig_pending = 0;
  if (api.mig_mode != nullptr && api.mig_mode(device, &mig, &mig_pending) == nvml::kSuccess) gpu.mig = mig == 1;
  const auto link = [&](nvml::DeviceGetPcieLink get, std::optional<int>& number) {
    unsigned value = 0;
    if (get != nullptr && get(device, &value) == nvml::kSuccess) number = static_cast<int>(value);
  };
  link(api.pcie_generation, gpu.pcie_generation);
  link(api.pcie_width, gpu.pcie_lanes);
  return gpu;
}

}  // namespace noisefloor
