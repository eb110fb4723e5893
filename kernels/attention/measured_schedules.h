// Schedules that won when all of a problem's were timed. measured_schedules.cpp is written by `scripts/tune attention`.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace noisefloor::attention {

struct MeasuredSchedule {
  std::int64_t batch, heads, seq_q, seq_kv, dim;  // of any layout and dtype
  int rows, keys, blocks, turns, splits;          // as in the choice's text

  bool operator==(const MeasuredSchedule&) const = default;
};

struct MeasuredSchedules {
  int sm_count;                                 // of the GPU they were timed on
  std::span<const MeasuredSchedule> schedules;  // by shape, ascending; each shape once
};

MeasuredSchedules measured_schedules();

}  // namespace noisefloor::attention
