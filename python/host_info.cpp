#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "bench/platform/processors.h"
#include "kernels/core/parallel.h"
#include "python/device.h"

namespace noisefloor::python {

const DeviceInfo& host_info() {
  static const DeviceInfo info = [] {
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    DeviceInfo host;
    host.sm_count = host_threads();
    host.l2_bytes = static_cast<std::size_t>(std::max(last_level, 0L));
    return host;
  }();
  return info;
}

std::string host_name() {
  const int cores = host_info().sm_count;
  return fmt::format("{} ({} {})", cpu_name(), cores, cores == 1 ? "core" : "cores");
}

}  // namespace noisefloor::python
