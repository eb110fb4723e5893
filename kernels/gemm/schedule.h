// How ptx_sm90a cuts a problem into tiles, splits and clusters. Host code, pure functions: testable without a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/variant.h"
#include "kernels/gemm/gemm.h"
#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::gemm {

using product::kBlockK;
using product::kRowBytes;
using Tile = product::Sm90aTile;
using Schedule = product::Sm90aSchedule;

inline constexpr std::array<Tile, 14> kTiles = {{
    {2, 256, 1, 4, 4},
    {2, 192, 1, 4, 4},
    {2, 160, 1, 5, 5},
    {2, 160, 1, 5, 5, true},
    {2, 128, 1, 6, 6},
    {2, 128, 1, 6, 6, true},
    {2, 96, 1, 7, 7},
    {2, 80, 1, 7, 7},
    {1, 128, 2, 4, 9},
    {1, 96, 2, 5, 10},
    {1, 80, 2, 5, 11},
    {1, 64, 2, 6, 13},
    {1, 32, 2, 8, 18},
    {2, 192, 1, 4, 4, true},  // of layout nn alone
}};

inline constexpr int kSmallestBlockN = 32;
static_assert(std::ranges::min(kTiles, {}, &Tile::block_n).block_n == kSmallestBlockN);

// Whether blocks of a cluster can share an output tile of this shape. Wider ones have no registers for it.
constexpr bool can_split(const Tile& tile) {
  return tile.block_n <= 160 && !tile.pingpong;
}

// Whether a tile is compiled for a layout: a matrix whose rows are k comes in boxes of 64 or 32 columns, and nothing
// that takes turns stores fp32.
constexpr bool takes(Layout layout, const Tile& tile) {
  if (layout == Layout::tn) return tile.block_n % 64 == 0 && !tile.pingpong;
  return layout == Layout::nn ? tile.block_n % 32 == 0 : !(tile.block_n == 192 && tile.pingpong);
}
// Whether a tile serves the problem: it lies in one part of D, and takes turns where D is a blend.
constexpr bool fits(const Problem& problem, const Tile& tile) {
  return takes(problem.layout, tile) && problem.part_columns % tile.block_n == 0 && (tile.pingpong || !problem.blend);
}

// Of the tiles above; see product/sm90a_schedule.h.
product::Sm90aModel model_of(const Problem& problem);
// Schedules that won when all of a problem's were timed, which choose() takes before its model: written by
// `tools/tune gemm` to measured_schedules.cpp.
struct MeasuredSchedule {
  std::int64_t m, n, k, gated, residual, part_columns;  // of a blend `residual` is 2
  product::MeasuredCut cut;
};

struct MeasuredSchedules {
  int sm_count;                                 // of the GPU they were timed on; schedules depend on it
  std::span<const MeasuredSchedule> schedules;  // by shape, ascending; each shape once
};

MeasuredSchedules measured_schedules();

// Layout tn: into how many parts k falls whose sums go to the workspace, where a second kernel adds them in their
// order: more than a cluster's blocks, where D has too few tiles for the device. 1: into none.
int k_parts(const Problem& problem, int sm_count);
// Of the parts' sums, and behind them their row sums.
std::size_t parts_bytes(const Problem& problem, int parts);
// The part's steps of k, of which some have one fewer.
constexpr std::int64_t part_steps(const Problem& problem, int parts) {
  const std::int64_t steps = (problem.k + kBlockK - 1) / kBlockK;
  return (steps + parts - 1) / parts;
}

// What was measured, where it was, else the schedule of least modelled time; of each part of k, on its share of the
// SMs.
Schedule choose(const Problem& problem, int sm_count, const MeasuredSchedules& measured = measured_schedules());

// The schedules as the tuner's choices, and the one of that text.
std::optional<Schedule> parse_choice(const Problem& problem, std::string_view text, int sm_count);
std::vector<Choice> schedule_choices(const Problem& problem, DType dtype, const DeviceInfo& device);

// ptx_sm90a of layouts nn and tn, behind its checks.
Status launch_ptx_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                           const Scratch& scratch, const LaunchContext& context);

}  // namespace noisefloor::gemm
