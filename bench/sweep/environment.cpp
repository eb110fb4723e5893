#include "bench/sweep/environment.h"

#include "bench/platform/build_info.h"

namespace noisefloor {

nlohmann::ordered_json environment_facts(const PlatformDescription& description, const std::string& driver_version) {
  const BuildInfo& build = build_info();
  return {
      {"device", description.name},
      {"memory_bytes", description.memory_bytes},
      {"compute_capability", description.info.compute_capability},
      {"sm_count", description.info.sm_count},
      {"l2_bytes", description.info.l2_bytes},
      {"driver", driver_version.empty() ? description.driver : driver_version},
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
}

}  // namespace noisefloor
