// The machine's processors, as a run finds them.
#pragma once

#include <optional>
#include <string>

namespace noisefloor {

std::string cpu_name();  // "AMD EPYC 9654 96-Core Processor"

struct Processors {
  std::string model;
  int cores = 0;                       // that this process may use
  std::string governor;                // "performance"; empty where the system does not say, as in most containers
  std::optional<double> load_average;  // runnable threads of the machine, the mean of the last minute
};
Processors describe_processors();

}  // namespace noisefloor
