#include "bench/platform/processors.h"

#include <sched.h>

#include <cstdlib>
#include <fstream>

namespace noisefloor {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
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

}  // namespace noisefloor
