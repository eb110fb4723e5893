// What a sampling loop launches beside its network: solver steps, noise, sums.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bench/pipeline/executor.h"
#include "reports/run/case_id.h"

namespace noisefloor::pipeline {

class SolverLaunches {
 public:
  SolverLaunches(Platform& platform, Executor& executor) : platform_(&platform), executor_(&executor) {}

  // The fastest of our variants for a problem, measured here; `name` is what launches and listeners call it.
  void choose(const Op& op, const std::string& name, const AnyProblem& problem);
  // Of a problem that may differ from the chosen one in what costs nothing: a step's number, an image's.
  void launch(const Op& op, const std::string& name, const AnyProblem& problem, std::span<void* const> pointers);

  void forget() { runners_.clear(); }  // what was made for problems; choices stay
  std::size_t runners() const { return runners_.size(); }

 private:
  Platform* platform_;
  Executor* executor_;
  struct Choice {
    ImplementationPtr implementation;
    std::optional<double> warm_us;
  };
  std::map<std::string, Choice> choices_;
  std::map<ProblemId, std::unique_ptr<Ready>> runners_;  // each problem is of one choice: a solver's half is a field
};

}  // namespace noisefloor::pipeline
