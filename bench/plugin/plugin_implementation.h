// A row of a plugin as an implementation: its functions are called with the problem as they want it, what they return
// or throw becomes an exception that names the function.
#pragma once

#include <string>

#include "bench/measure/implementation.h"
#include "bench/plugin/include/noisefloor/plugin.h"

namespace noisefloor {

struct PluginTerms {
  noisefloor_plugin functions;  // its texts are not read any more
  std::string name, file;
  Kind kind;
  Arch arch;
};

// `workload` must outlive it.
ImplementationPtr plugin_implementation(const Workload& workload, const PluginTerms& terms);

}  // namespace noisefloor
