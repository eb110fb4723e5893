#include "bench/platform/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <utility>

#include "bench/platform/nvml_api.h"

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
  unsigned long long reasons = 0;
  if (api.event_reasons != nullptr && api.event_reasons(device, &reasons) == nvml::kSuccess)
    state.clock_event_reasons = reasons;
  if (api.processes != nullptr) {
    unsigned count = 0;
    const nvml::Result result = api.processes(device, &count, nullptr);
    if (result == nvml::kSuccess || result == nvml::kInsufficientSize)
      state.compute_processes = static_cast<int>(count);
  }
  return state;
}

}  // namespace noisefloor
