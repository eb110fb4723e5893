// Written by `scripts/tune gemm`; not by hand. NVIDIA H200, 132 SMs, commit 6e1eb637a219: 434 schedules, the best of
// those timed of 78 problems of bench/problems/gemm.csv (bf16), warm (in a CUDA graph) and cold. A shape is here
// where one schedule took at least 1 % less than the estimate's, over all its kinds that were timed.
#include "kernels/gemm/measured_schedules.h"

namespace noisefloor::gemm {
namespace {

// clang-format off
// m, n, k, gated; rows, columns, pingpong, multicast, splits
constexpr std::array<MeasuredSchedule, 30> kSchedules = {{
    {1, 512, 512, 0, 64, 64, 0, 1, 4},
    {1, 768, 768, 0, 64, 64, 0, 1, 8},
    {1, 768, 1000, 0, 64, 64, 0, 1, 4},
    {1, 8448, 512, 0, 64, 128, 0, 1, 1},
    {1, 35712, 768, 0, 64, 128, 0, 1, 1},
    {2, 320, 1280, 0, 64, 64, 0, 1, 8},
    {2, 640, 1280, 0, 64, 64, 0, 1, 4},
    {2, 1280, 2816, 0, 64, 128, 0, 1, 4},
    {8, 384, 768, 0, 64, 64, 0, 1, 4},
    {8, 768, 768, 0, 64, 64, 0, 1, 4},
    {8, 768, 1000, 0, 64, 64, 0, 1, 4},
    {8, 1152, 768, 0, 64, 80, 0, 1, 4},
    {32, 768, 768, 0, 64, 64, 0, 1, 4},
    {32, 768, 1000, 0, 64, 64, 0, 1, 4},
    {64, 768, 768, 0, 64, 64, 0, 1, 4},
    {128, 1280, 1280, 0, 64, 32, 0, 2, 2},
    {128, 3840, 1280, 0, 64, 80, 0, 2, 1},
    {154, 1280, 768, 0, 64, 64, 0, 2, 1},
    {154, 1280, 2048, 0, 64, 128, 0, 1, 4},
    {154, 2560, 768, 0, 64, 80, 0, 1, 1},
    {154, 2560, 2048, 0, 64, 80, 0, 2, 1},
    {256, 576, 576, 0, 64, 32, 0, 1, 2},
    {256, 1728, 576, 0, 64, 64, 0, 2, 1},
    {512, 768, 768, 0, 64, 80, 0, 2, 1},
    {2048, 1920, 640, 0, 128, 128, 1, 2, 1},
    {2048, 2304, 768, 0, 128, 160, 0, 2, 1},
    {2048, 3840, 1280, 0, 128, 128, 1, 2, 1},
    {2048, 5120, 640, 0, 128, 128, 1, 2, 1},
    {8192, 1920, 640, 0, 128, 128, 1, 2, 1},
    {32768, 384, 384, 0, 128, 128, 0, 1, 1},
}};
// clang-format on

}  // namespace

MeasuredSchedules measured_schedules() {
  return {132, kSchedules};
}

}  // namespace noisefloor::gemm
