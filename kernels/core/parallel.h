// All cores of the host, through OpenMP.
#pragma once

#include <cstdint>

namespace noisefloor {

// Calls body(begin, end) on disjoint ranges that cover [0, count), each a multiple of `grain` long but the last. Ranges
// are handed out dynamically. body must not throw.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t chunks = (count + grain - 1) / grain;
#pragma omp parallel for schedule(dynamic) if (chunks > 1)
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t begin = chunk * grain;
    const std::int64_t end = begin + grain < count ? begin + grain : count;
    body(begin, end);
  }
}

}  // namespace noisefloor
