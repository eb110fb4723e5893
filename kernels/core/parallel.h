// All cores of the host, through OpenMP.
#pragma once

#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

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

// The same for what memory bounds, by a few threads: a region ends when all of its threads have run, and on a host of
// many cores that others use some run late.
template <class Body>
void parallel_for_memory(std::int64_t count, std::int64_t grain, const Body& body) {
  [[maybe_unused]] constexpr int kThreads = 8;
  const std::int64_t chunks = (count + grain - 1) / grain;
#ifdef _OPENMP
  const int threads = omp_get_max_threads() < kThreads ? omp_get_max_threads() : kThreads;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (chunks > 1)
#endif
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t begin = chunk * grain;
    body(begin, begin + grain < count ? begin + grain : count);
  }
}

}  // namespace noisefloor
