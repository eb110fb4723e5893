#include "bench/platform/pinned_threads.h"

#include <omp.h>

#include <cstdlib>
#include <vector>

#include "kernels/core/parallel.h"

namespace noisefloor {

PinnedThreads::PinnedThreads() {
  const int threads = host_threads();
  cpu_set_t all;
  CPU_ZERO(&all);
  if (std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("OMP_PLACES") != nullptr ||
      std::getenv("GOMP_CPU_AFFINITY") != nullptr || sched_getaffinity(0, sizeof all, &all) != 0 ||
      CPU_COUNT(&all) != threads)
    return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  before_ = all;
#pragma omp parallel num_threads(threads)
  {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[static_cast<std::size_t>(omp_get_thread_num()) % cores.size()], &one);
    (void)sched_setaffinity(0, sizeof one, &one);
  }
}

PinnedThreads::~PinnedThreads() {
  if (!before_) return;
#pragma omp parallel num_threads(host_threads())
  { (void)sched_setaffinity(0, sizeof *before_, &*before_); }
}

}  // namespace noisefloor
