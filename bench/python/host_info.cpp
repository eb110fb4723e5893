#include <omp.h>
#include <unistd.h>

#include <algorithm>

#include "bench/python/device.h"

namespace noisefloor::python {

const DeviceInfo& host_info() {
  static const DeviceInfo info = [] {
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    DeviceInfo host;
    host.sm_count = omp_get_max_threads();
    host.l2_bytes = static_cast<std::size_t>(std::max(last_level, 0L));
    return host;
  }();
  return info;
}

}  // namespace noisefloor::python
