// How ptx_sm90a cuts a convolution into tiles, splits and clusters. Host code, pure functions: testable without a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/convolution/convolution.h"
#include "kernels/product/sm80_plan.h"
#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::convolution {

using product::kBlockK;
using product::kRowBytes;
using Tile = product::Sm90aTile;
using Schedule = product::Sm90aSchedule;

// Fitted to the widths of diffusion networks: 192 and 96 for multiples of 192, 160 for those of 320, 256 and 128 for
// powers of two, the lower ones for few pixels.
inline constexpr std::array<Tile, 12> kTiles = {{
    {2, 256, 1, 4, 4},
    {2, 192, 1, 5, 5},
    {2, 160, 1, 5, 5},
    {2, 160, 1, 5, 5, true},
    {2, 128, 1, 6, 6},
    {2, 128, 1, 6, 6, true},
    {2, 96, 1, 7, 7},
    {1, 160, 1, 7, 7},
    {1, 128, 2, 4, 8},
    {1, 96, 2, 5, 10},
    {1, 64, 2, 6, 13},
    {1, 32, 2, 8, 17},
}};

// The blocks of 8 channels that split s of a tile finishes: [share_begin(s), share_begin(s + 1)).
template <class Count>  // an int, or a Divider
constexpr int share_begin(int block_n, const Count& splits, int split) {
  return block_n / 8 * split / splits;
}
template <class Count>
constexpr int share_blocks(int block_n, const Count& splits, int split) {
  return share_begin(block_n, splits, split + 1) - share_begin(block_n, splits, split);
}
constexpr int largest_share(int block_n, int splits) {
  return (block_n / 8 + splits - 1) / splits;
}
// Bytes of a block's DSMEM buffer in a split tile: its share from each of the blocks.
constexpr int dsmem_bytes(const Tile& tile, int splits) {
  return tile.block_m() * 32 * splits * largest_share(tile.block_n, splits);
}
// Whether `splits` blocks of a cluster can share an output tile of this shape: the DSMEM buffer lies in stages. The
// widest tile and those in ping-pong keep too many registers for it.
constexpr bool can_split(const Tile& tile, int splits) {
  return splits == 1 || (tile.block_n <= 192 && !tile.pingpong && splits <= tile.block_n / 8 &&
                         dsmem_bytes(tile, splits) <= tile.stages * (tile.block_m() + tile.block_n) * kRowBytes);
}

// Whether a tile of the ptx_sm90a kernels takes n-major weights: in pieces of 64 columns (product::load_b).
constexpr bool takes_n_major(const Tile& tile) {
  return tile.block_n % 64 == 0;
}

// Whether a row of the output begins at 16 bytes.
constexpr bool stores_by_tma(const Convolution& c) {
  return c.cout % 8 == 0;
}

// k-steps of so many channels, of those of x under the taps, and of those of a second source, which stand behind them.
constexpr int steps_of(int channels) {
  return (channels + kBlockK - 1) / kBlockK;
}
constexpr int tap_steps(const Convolution& c) {
  return c.y.taps * c.x.taps * steps_of(c.cin);
}
constexpr int side_steps(const Convolution& c) {
  return steps_of(c.side) + steps_of(c.side_skip);
}
// What step `step` of a second source reads: a channel of which tensor, and the column of its weights.
struct SideCoordinate {
  bool skip;
  int channel, column;
};
constexpr SideCoordinate side_coordinate(const Convolution& c, int step) {
  const int behind = step - steps_of(c.side);
  if (behind < 0) return {false, step * kBlockK, step * kBlockK};
  return {true, behind * kBlockK, c.side + behind * kBlockK};
}

// The product: a unit is a phase; every tap and every source has whole steps of 64 input channels.
product::Sm90aProduct cut(const Convolution& convolution);

// Of the tiles above; see product/sm90a_schedule.h.
product::Sm90aModel im2col_model_of(const Convolution& convolution);
// Schedules that won when all of a problem's were timed, which choose() takes before its model: written by
// `tools/tune conv2d` to measured_schedules.cpp.
struct MeasuredSchedule {
  std::int64_t n, h, w, cin, cout, kernel, stride, pad, upsample, side, side_skip;
  product::MeasuredCut cut;
};

struct MeasuredSchedules {
  int sm_count;                                    // of the GPU they were timed on; schedules depend on it
  std::span<const MeasuredSchedule> im2col, halo;  // by shape, ascending; each shape once
};

MeasuredSchedules measured_schedules();

// What was measured, where it was, else the schedule of least modelled time.
Schedule choose(const Convolution& convolution, int sm_count, const MeasuredSchedules& measured = measured_schedules());
// The row of such a conv2d, else of the same without its second source; null where there is none. It must outlive what
// is returned.
const product::MeasuredCut* measured_cut(const Convolution& convolution, std::span<const MeasuredSchedule> rows);

struct Sm80Plan {
  product::Sm80Tile tile = product::Sm80Tile::medium_128x64;
  int splits = 1;                  // parts of k, summed in order by a second kernel
  std::int64_t phase_tiles_m = 0;  // tiles along the rows of one phase
  std::int64_t tiles_n = 0;
  int phases = 1;

  std::int64_t blocks() const { return phases * phase_tiles_m * tiles_n * splits; }
};

Sm80Plan choose_sm80_plan(const Convolution& convolution, const DeviceInfo& device);

}  // namespace noisefloor::convolution
