#include "kernels/convolution/schedule.h"

#include <algorithm>
#include <limits>

namespace noisefloor::convolution {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// SMs that blocks of this schedule can use. Clusters of more than two blocks do not fill every GPC: how many blocks of
// an H200's 132 run at once in clusters of 1 to 8, each block with an SM to itself (the largest grids that took one
// wave, where grids were tried; 4 and 8 as gemm counts them).
std::int64_t usable_sms(const Schedule& schedule, int sm_count) {
  constexpr int kBlocksOf132[] = {132, 132, 108, 120, 100, 96, 98, 120};
  return std::int64_t{sm_count} * kBlocksOf132[schedule.cluster() - 1] / 132;
}

// Blocks that can be on the device at once, in whole clusters.
std::int64_t resident_blocks(const Schedule& schedule, int sm_count) {
  const Tile& shape = kTiles[static_cast<std::size_t>(schedule.tile)];
  const std::int64_t blocks =
      usable_sms(schedule, sm_count) * (schedule.stages > shape.stages ? 1 : shape.blocks_per_sm);
  return std::max<std::int64_t>(blocks / schedule.cluster(), 1) * schedule.cluster();
}

std::int64_t block_count(const Schedule& schedule) {
  return schedule.m_clusters() * schedule.n_tiles * schedule.cluster();
}

}  // namespace

Schedule make_schedule(const Convolution& c, int tile, int multicast, int splits, int sm_count) {
  const Tile& shape = kTiles[static_cast<std::size_t>(tile)];
  Schedule schedule;
  schedule.tile = tile;
  schedule.multicast = multicast;
  schedule.splits = splits;
  const bool by_image = c.stats && c.phase_pixels() % kSlabRows != 0;
  schedule.units = c.phases() * (by_image ? c.images : 1);
  schedule.unit_rows = by_image ? c.phase_pixels() : c.phase_rows();
  schedule.unit_clusters = ceil_div(ceil_div(schedule.unit_rows, shape.block_m()), multicast);
  schedule.n_tiles = ceil_div(c.cout, shape.block_n);
  const bool alone = block_count(schedule) <= usable_sms(schedule, sm_count);
  schedule.stages = alone ? shape.deep_stages : shape.stages;
  schedule.grid =
      splits > 1 ? block_count(schedule) : std::min(block_count(schedule), resident_blocks(schedule, sm_count));
  return schedule;
}

// The form of gemm's schedule.cpp: a block walks its tiles one after the other; a step of 64 along k costs what its
// slowest resource needs, a tile adds the filling of the pipe and the epilogue, a split the exchange of partial sums.
// The constants are a fit to timed schedules of the convolutions of adm64-b1 and sd15-b2 on an H200, and stand for more
// than their names say: what matters is the order of schedules (docs/log/convolution).
double modelled_cycles(const Convolution& c, const Schedule& schedule, int sm_count) {
  constexpr double kFmaPerCycle = 1500;      // of the 2048 of four tensor cores
  constexpr double kBytesPerCycle = 45;      // L2 to one SM
  constexpr double kLoadLatency = 4060;      // of a stage, under load: `stages` of them are in flight
  constexpr double kLeastStep = 263;         // barriers and issue
  constexpr double kByteCycles = 0.00055;    // what a loaded byte takes from the products (shared memory, power)
  constexpr double kFillCycles = 2890;       // first load to first product
  constexpr double kStoreCycles = 0.098;     // per element of a tile
  constexpr double kExchangeCycles = 0.248;  // per element of a partial tile sent through distributed shared memory
  constexpr double kMeetCycles = 469;        // a cluster's blocks waiting for each other
  constexpr double kMeetCyclesPerBlock = 27;
  constexpr double kMulticastCycles = 286;  // neighbours in lock step, once per launch

  const Tile& shape = kTiles[static_cast<std::size_t>(schedule.tile)];
  const double elements = static_cast<double>(shape.block_m()) * shape.block_n;
  const std::int64_t blocks = block_count(schedule);
  const double sharing = blocks > sm_count ? shape.blocks_per_sm : 1;  // blocks that divide an SM's resources
  const auto waves = static_cast<double>(ceil_div(blocks, resident_blocks(schedule, sm_count)));
  const auto steps = static_cast<double>(ceil_div(k_steps(c), schedule.splits));

  const double load_bytes = (shape.block_m() + static_cast<double>(shape.block_n) / schedule.multicast) * kBlockK * 2;
  const double step = std::max({sharing * elements * kBlockK / kFmaPerCycle, sharing * load_bytes / kBytesPerCycle,
                                kLoadLatency / schedule.stages, kLeastStep}) +
                      kByteCycles * load_bytes;
  double tile = kFillCycles + steps * step + sharing * elements * kStoreCycles;
  if (schedule.splits > 1)
    tile += kMeetCycles + kMeetCyclesPerBlock * schedule.splits + sharing * elements * (kExchangeCycles - kStoreCycles);
  return (schedule.multicast > 1 ? kMulticastCycles : 0) + waves * tile;
}

Schedule choose(const Convolution& c, int sm_count) {
  Schedule best;
  double least = std::numeric_limits<double>::infinity();
  for (int tile = 0; tile < static_cast<int>(kTiles.size()); ++tile) {
    const Tile& shape = kTiles[static_cast<std::size_t>(tile)];
    for (const int multicast : {1, 2}) {
      for (int splits = 1; splits <= kMaxSplits; ++splits) {
        if (splits > k_steps(c) || multicast * splits > 8 || !can_split(shape, splits)) continue;
        const Schedule schedule = make_schedule(c, tile, multicast, splits, sm_count);
        if (multicast > 1 && schedule.unit_rows <= shape.block_m()) continue;
        const double cycles = modelled_cycles(c, schedule, sm_count);
        if (cycles < least) {
          least = cycles;
          best = schedule;
        }
      }
    }
  }
  return best;
}

}  // namespace noisefloor::convolution
