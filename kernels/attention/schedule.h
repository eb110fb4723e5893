// How ptx_sm90a cuts a problem into tiles, and how its consumers take turns. Host code, pure functions: testable
// without a GPU.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/measured_schedules.h"
#include "kernels/core/choice.h"

namespace noisefloor::attention {

// A kernel that is compiled in: for heads of up to `dim`, with `consumers` warpgroups of 64 queries past `keys` keys at
// a time, `blocks` of it on an SM.
struct Tile {
  int dim, keys, consumers, blocks = 1;
  bool overlap = true;  // a tile's values are multiplied under the next one's softmax
  int polynomial = 0;   // of eight exponentials, by the FMA pipes
  bool splits = false;  // blocks of a cluster may share the keys

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

// By head size; the first of each is that of problems that were not timed.
inline constexpr std::array<Tile, 22> kTiles = {{
    {40, 128, 2, 1, true, 0, true},
    {40, 128, 2, 1, true, 1},
    {40, 128, 3},
    {40, 64, 2, 2},
    {40, 64, 2, 2, true, 1},
    {40, 80, 2, 2},
    {40, 64, 4},
    {40, 80, 4},
    {64, 128, 2, 1, true, 0, true},
    {64, 128, 2, 1, true, 1},
    {64, 128, 2, 1, false},
    {64, 128, 3},
    {64, 128, 3, 1, false},
    {64, 64, 2, 2},
    {64, 64, 2, 2, true, 1},
    {64, 80, 2, 2},
    {64, 64, 4},
    {64, 64, 4, 1, false},
    {80, 128, 2, 1, true, 0, true},
    {128, 128, 2, 1, true, 0, true},
    {160, 80, 2, 1, true, 0, true},
    {256, 64, 2, 1, true, 0, true},
}};

struct Schedule {
  int tile;
  bool turns;      // consumers take turns at issuing products
  bool lazy;       // sums are rescaled only where the maximum rises by more than 8, to base 2
  int splits = 1;  // blocks of a cluster that share the keys

  constexpr float slack() const { return lazy ? 8.0f : 0.0f; }
};

// What was measured, where it was, else the first tile.
Schedule choose(const Problem& problem, int sm_count, const MeasuredSchedules& measured = measured_schedules());

// The schedules as the tuner's choices, and the one of such a text.
std::vector<Choice> schedule_choices(const Problem& problem, DType dtype, const DeviceInfo& device);
std::optional<Schedule> parse_schedule(const Problem& problem, std::string_view choice, int sm_count);
Status launch_schedule_choice(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                              const LaunchContext& context, std::string_view choice);

}  // namespace noisefloor::attention
