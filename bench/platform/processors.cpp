#include "bench/platform/processors.h"

#include <omp.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "kernels/core/parallel.h"

namespace noisefloor {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "host CPU";
}

Processors describe_processors() {
  Processors found;
  found.model = cpu_name();
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) found.cores = CPU_COUNT(&allowed);
  std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") >> found.governor;
  double load = 0;
  if (getloadavg(&load, 1) == 1) found.load_average = load;
  return found;
}

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
