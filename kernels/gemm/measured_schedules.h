// Schedules that won when all of a problem's were timed, which choose() takes before its model. measured_schedules.cpp
// is written by `scripts/tune gemm`.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/product/sm90a_choices.h"

namespace noisefloor::gemm {

struct MeasuredSchedule {
  std::int64_t m, n, k, gated, residual, part_columns;  // of a blend `residual` is 2
  product::MeasuredCut cut;
};

struct MeasuredSchedules {
  int sm_count;                                 // of the GPU they were timed on; schedules depend on it
  std::span<const MeasuredSchedule> schedules;  // by shape, ascending; each shape once
};

MeasuredSchedules measured_schedules();

}  // namespace noisefloor::gemm
