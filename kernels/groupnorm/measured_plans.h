// Plans that won when many were timed, which choose_cluster_plan takes before any estimate. measured_plans.cpp is
// written by `scripts/tune groupnorm`.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace noisefloor::groupnorm {

struct MeasuredPlan {
  std::int64_t n, hw, channels, groups, down_w;  // the problems, of any fusion and dtype
  int bundle, blocks, threads, held;             // what make_cluster_plan takes
};

struct MeasuredPlans {
  int sm_count;                         // of the GPU they were timed on; plans depend on it
  std::span<const MeasuredPlan> plans;  // by n, hw, channels, groups, down_w, ascending; each shape once
};

MeasuredPlans measured_plans();

}  // namespace noisefloor::groupnorm
