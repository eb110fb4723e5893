// noisefloor devices: what is in this machine, what this program was built for, and what can be counted.
#include <fmt/format.h>

#include <string>

#include "bench/commands/commands.h"
#include "bench/counters/range_profiler.h"
#include "bench/platform/build_info.h"
#include "bench/platform/nvml.h"

namespace noisefloor {
namespace {

struct DevicesArguments {};

void print_gpu(int index) {
  const auto platform = make_cuda_platform(index);
  const PlatformDescription& gpu = platform->description();
  fmt::print("device {}: {}, sm_{}, {} SMs, {:.1f} GiB, L2 {:.0f} MiB, PCI {}\n", index, gpu.name,
             gpu.info.compute_capability, gpu.info.sm_count, static_cast<double>(gpu.memory_bytes) / 0x1p30,
             static_cast<double>(gpu.info.l2_bytes) / 0x1p20, gpu.pci_bus_id);
  const GpuMonitor monitor(gpu.pci_bus_id);
  fmt::print("  driver: {} (CUDA {}), program: CUDA {}\n", monitor.available() ? monitor.driver_version() : "?",
             gpu.driver, gpu.runtime);
  if (!monitor.available()) {
    fmt::print("  NVML: {}\n", monitor.reason());
  } else {
    const GpuState state = monitor.read();
    const auto text = [](const auto& value, const char* unit) {
      return value ? fmt::format("{} {}", *value, unit) : std::string("?");
    };
    const GpuDescription setup = monitor.describe();
    fmt::print("  {}, power limit {}, SM up to {}, memory up to {}\n", gpu.uuid, text(setup.power_limit_w, "W"),
               text(setup.sm_clock_max_mhz, "MHz"), text(setup.memory_clock_max_mhz, "MHz"));
    fmt::print("  now: SM {}, memory {}, {}, {}, throttle: {}\n", text(state.sm_clock_mhz, "MHz"),
               text(state.memory_clock_mhz, "MHz"), text(state.temperature_c, "C"), text(state.power_w, "W"),
               state.clock_event_reasons ? clock_events_text(*state.clock_event_reasons & kClockThrottle) : "?");
  }
  const CounterProbe probe = probe_counters();
  fmt::print("  counters: {}{}\n", to_string(probe.status), probe.message.empty() ? "" : " (" + probe.message + ")");
}

int devices(const DevicesArguments&) {
  const BuildInfo& build = build_info();
  fmt::print("noisefloor {} (commit {}, {}, {})\n", build.version, build.commit, build.build_type, build.compiler);
  fmt::print("built for: host {}, CUDA {}\n", build.host_arch,
             build.cuda_toolkit.empty() ? "none" : build.cuda_toolkit + " architectures " + build.cuda_architectures);
  std::string why;
  const auto gpus = list_cuda_devices(why);
  if (gpus.empty()) fmt::print("no GPU: {}\n", why);
  for (const CudaDevice& gpu : gpus) {
    if (gpu.unserved.empty())
      print_gpu(gpu.index);
    else
      fmt::print("device {}: {}, PCI {}: {}\n", gpu.index, gpu.name, gpu.pci_bus_id, gpu.unserved);
  }
  const auto host = make_host_platform();
  fmt::print("host: {}, {:.1f} GiB, last-level cache {:.0f} MiB\n", host->description().name,
             static_cast<double>(host->description().memory_bytes) / 0x1p30,
             static_cast<double>(host->description().info.l2_bytes) / 0x1p20);
  return kDone;
}

}  // namespace

void add_devices_command(CLI::App& app, CommandResult result) {
  add_command(app, result, "devices", "List GPUs, driver, host, what was built and what can be counted", devices);
}

}  // namespace noisefloor
