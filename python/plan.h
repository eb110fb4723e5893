// Plans as Python holds them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "python/call.h"

namespace noisefloor::python {

struct LoadedPlan {
  std::shared_ptr<const Plan> plan;

  using Line = std::tuple<std::string, std::string, std::string, std::string>;  // op, dtype, problem, variant
  LoadedPlan(const std::string& file, const std::string& device, const std::vector<Line>& lines);
};

// The plan of a call: that of plan=, a LoadedPlan or the file of one; of None that of `use_plan`, or null.
std::shared_ptr<const Plan> plan_of_call(nanobind::handle plan);

void define_plan(nanobind::module_& m);

}  // namespace noisefloor::python
