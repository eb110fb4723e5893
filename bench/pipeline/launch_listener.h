// Who wants to know of each launch of a pipeline, around it: breakdowns.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "reports/run/case_id.h"

namespace noisefloor::pipeline {

// One launch: a node of the network, or one of the solver's own.
struct LaunchLabel : CaseId {
  std::string node;
  std::optional<double> warm_us;  // by itself, as the plan measured it or a sweep's row has it
  // What it needs of the network's memory: activations that live while it runs, and its own workspace.
  struct Memory {
    std::size_t activations, workspace;
  };
  std::optional<Memory> memory = {};
};

class LaunchListener {
 public:
  virtual ~LaunchListener() = default;
  virtual void before(const LaunchLabel& label) = 0;
  virtual void after() = 0;
};

}  // namespace noisefloor::pipeline
