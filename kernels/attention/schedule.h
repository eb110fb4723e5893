// How ptx_sm90a cuts a problem into tiles, and how its consumers take turns. Host code, pure functions: testable
// without a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/core/variant.h"

namespace noisefloor::attention {

// A kernel that is compiled in: for heads of up to `dim`, with `consumers` warpgroups of 64 queries past `keys` keys at
// a time, `blocks` of it on an SM.
struct Tile {
  int dim, keys, consumers, blocks;
  bool splits;    // pairs of blocks may share the keys
  double key_ns;  // of a full SM per key, fitted to an H200's times (docs/experiments/attention); guessed for heads of
                  // 128, 256

  constexpr int rows() const { return 64 * consumers; }
  // Where two blocks share an SM, a consumer's thread loads; else a warpgroup of its own, whose registers they get.
  constexpr bool has_producer() const { return blocks == 1; }
  constexpr int threads() const { return 128 * (consumers + (has_producer() ? 1 : 0)); }
  constexpr int stages() const { return keys < 128 && dim <= 64 ? 4 : 2; }
  // What setmaxnreg deals out is what the block was launched with.
  constexpr int producer_registers() const { return dim > 128 ? 40 : 32; }
  constexpr int consumer_registers() const {
    const int at_launch = 65536 / (threads() * blocks) / 8 * 8;
    return has_producer() ? (at_launch * (consumers + 1) - producer_registers()) / consumers / 8 * 8 : at_launch;
  }
};

// By head size.
inline constexpr std::array<Tile, 10> kTiles = {{
    {40, 128, 2, 1, true, 8.7},
    {40, 80, 4, 1, false, 13.4},
    {64, 128, 2, 1, true, 9.4},
    {64, 128, 3, 1, true, 11.3},
    {64, 64, 2, 2, false, 19.4},
    {64, 80, 2, 2, false, 18.1},
    {80, 128, 2, 1, true, 10.7},
    {128, 128, 2, 1, true, 14.0},
    {160, 80, 2, 1, true, 14.7},
    {256, 64, 2, 1, true, 24.0},
}};

struct Schedule {
  int tile;
  bool turns;      // consumers take turns at issuing products
  int splits = 1;  // 2: pairs of blocks share the keys of tiles behind the last full wave (of all, where none is full)
};

// Blocks of a launch in clusters of `splits`: in the first `whole` ones a block has a tile of its own.
struct Grid {
  std::int64_t whole, blocks;
};
Grid grid_of(const Problem& problem, const Schedule& schedule, int sm_count);

// Schedules that won when all of a problem's were timed, which choose() takes before its model: written by
// `tools/tune attention` to measured_schedules.cpp.
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

// What was measured, where it was, else the least estimate of those whose parts were: only a measured row splits behind
// full waves.
Schedule choose(const Problem& problem, int sm_count, const MeasuredSchedules& measured = measured_schedules());

// Of a schedule, from waves of tiles and keys.
double estimated_us(const Problem& problem, const Schedule& schedule, int sm_count);

// The schedules as the tuner's choices, and the one of such a text.
std::vector<Choice> schedule_choices(const Problem& problem, DType dtype, const DeviceInfo& device);
std::optional<Schedule> parse_schedule(const Problem& problem, std::string_view choice, int sm_count);

// How ptx_sm90a_wide cuts a problem.
inline constexpr std::int64_t kWideRows = 64;   // queries of a block
inline constexpr std::int64_t kWidePair = 2;    // blocks of a cluster, neighbours in queries: keys and values come once
inline constexpr std::int64_t kWideKeys = 128;  // that it takes at a time

// Blocks that would take all keys, whole clusters of them.
std::int64_t wide_blocks(const Problem& problem);

// Among how many blocks the keys of each query may be shared, the estimate's choice first.
std::vector<int> wide_splits(const Problem& problem, int sm_count);

// Sums of each split in fp32 and, behind them, a row's maximum and sum; none where the keys are not split.
std::size_t wide_partial_bytes(const Problem& problem, int splits);
// Of any choice.
std::size_t wide_workspace_bytes(const Problem& problem, DType dtype, const DeviceInfo& device);

// The tuner's choices, and what one of their texts says.
std::vector<Choice> wide_choices(const Problem& problem, DType dtype, const DeviceInfo& device);
std::optional<int> parse_wide_splits(const Problem& problem, std::string_view choice, int sm_count);

}  // namespace noisefloor::attention
