#include "bench/sweep/environment.h"

#include <fmt/format.h>

#include "baselines/baseline.h"
#include "bench/counters/range_profiler.h"
#include "bench/platform/build_info.h"
#include "bench/platform/processors.h"

namespace noisefloor {

nlohmann::ordered_json gpu_facts(const GpuDescription& gpu) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) facts[name] = *value;
  };
  const auto add_mode = [&](const char* name, const std::optional<bool>& on) {
    if (on) facts[name] = *on ? "on" : "off";
  };
  add("power_limit_w", gpu.power_limit_w);
  add("power_limit_default_w", gpu.power_limit_default_w);
  add("sm_clock_max_mhz", gpu.sm_clock_max_mhz);
  add("memory_clock_max_mhz", gpu.memory_clock_max_mhz);
  add("sm_clock_application_mhz", gpu.sm_clock_application_mhz);
  add("memory_clock_application_mhz", gpu.memory_clock_application_mhz);
  add_mode("ecc", gpu.ecc);
  add_mode("mig", gpu.mig);
  if (gpu.pcie_generation && gpu.pcie_lanes)
    facts["pcie"] = fmt::format("generation {}, {} lanes", *gpu.pcie_generation, *gpu.pcie_lanes);
  return facts;
}

nlohmann::ordered_json environment_facts(const PlatformDescription& description, const GpuMonitor& monitor) {
  const BuildInfo& build = build_info();
  const std::string& driver = monitor.driver_version();
  nlohmann::ordered_json facts = {
      {"device", description.name},
      {"gpu_uuid", description.uuid},
      {"memory_bytes", description.memory_bytes},
      {"compute_capability", description.info.compute_capability},
      {"sm_count", description.info.sm_count},
      {"l2_bytes", description.info.l2_bytes},
      {"driver", driver.empty() ? description.driver : driver},
      {"cuda_driver", description.is_host ? "" : description.driver},
      {"cuda_runtime", description.is_host ? "" : description.runtime},
      {"cuda_toolkit", build.cuda_toolkit},
      {"cuda_architectures", build.cuda_architectures},
      {"compiler", build.compiler},
      {"host_arch", build.host_arch},
      {"build_type", build.build_type},
      {"version", build.version},
      {"commit", build.commit},
  };
  if (!description.is_host) {
    facts.update(gpu_facts(monitor.describe()));
    for (const auto& [name, version] : library_versions()) facts[name] = version;
    if (const std::string cupti = cupti_version(); !cupti.empty()) facts["cupti"] = cupti;
  }
  const Processors processors = describe_processors();
  facts["cpu"] = processors.model;
  facts["cpu_cores"] = processors.cores;
  if (!processors.governor.empty()) facts["cpu_governor"] = processors.governor;
  if (processors.load_average) facts["load_average"] = *processors.load_average;
  return facts;
}

}  // namespace noisefloor
