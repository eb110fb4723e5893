// Written by `tools/tune attention`; not by hand. NVIDIA H200, 132 SMs, commit 2b9230a55ec4: 62 schedules, the
// best of those timed of 13 problems of bench/problems/attention.csv (bf16), warm (in a CUDA graph) and cold. A
// shape is here where one schedule took at least 1 % less than the estimate's, over all its kinds that were timed.
#include "kernels/attention/schedule.h"

namespace noisefloor::attention {
namespace {

// clang-format off
// batch, heads, seq_q, seq_kv, dim; rows, keys, blocks, turns, splits
constexpr std::array<MeasuredSchedule, 2> kSchedules = {{
    {2, 8, 256, 256, 160, 128, 80, 1, 1, 1},
    {2, 10, 4096, 4096, 64, 192, 128, 1, 0, 2},
}};
// clang-format on

}  // namespace

MeasuredSchedules measured_schedules() {
  return {132, kSchedules};
}

}  // namespace noisefloor::attention
