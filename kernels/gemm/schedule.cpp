#include "kernels/gemm/schedule.h"

#include <algorithm>
#include <limits>

namespace noisefloor::gemm {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// SMs that blocks of this schedule can use. Clusters of more than two blocks do not fill every GPC (a GPC of an H200
// has 16 or 18 SMs, of 132 in all: 120 blocks fit in clusters of 4 and of 8).
std::int64_t usable_sms(const Schedule& schedule, int sm_count) {
  return schedule.cluster() > 2 ? sm_count * 10 / 11 : sm_count;
}

// Blocks that can be on the device at once, in whole clusters.
std::int64_t resident_blocks(const Schedule& schedule, int sm_count) {
  const Tile& shape = kTiles[static_cast<std::size_t>(schedule.tile)];
  const std::int64_t blocks =
      usable_sms(schedule, sm_count) * (schedule.stages > shape.stages ? 1 : shape.blocks_per_sm);
  return std::max<std::int64_t>(blocks / schedule.cluster(), 1) * schedule.cluster();
}

std::int64_t block_count(const Schedule& schedule) {
  return schedule.m_clusters * schedule.n_tiles * schedule.cluster();
}

}  // namespace

Schedule make_schedule(const Problem& problem, int tile, int multicast, int splits, int sm_count) {
  const Tile& shape = kTiles[static_cast<std::size_t>(tile)];
  Schedule schedule;
  schedule.tile = tile;
  schedule.multicast = multicast;
  schedule.splits = splits;
  schedule.m_clusters = ceil_div(ceil_div(problem.m, shape.block_m()), multicast);
  schedule.n_tiles = ceil_div(problem.b_rows(), shape.block_n);
  const bool alone = block_count(schedule) <= usable_sms(schedule, sm_count);
  schedule.stages = alone ? shape.deep_stages : shape.stages;
  schedule.grid =
      splits > 1 ? block_count(schedule) : std::min(block_count(schedule), resident_blocks(schedule, sm_count));
  return schedule;
}

// A block walks its tiles one after the other; a step of 64 along k costs what its slowest resource needs, a tile adds
// the filling of the pipe and the epilogue, a split the exchange of partial sums. The constants are a fit to timings of
// all schedules on some sixty problems of diffusion networks, held within what the hardware can do.
double modelled_cycles(const Problem& problem, const Schedule& schedule, int sm_count) {
  constexpr double kFmaPerCycle = 2048 * 0.98;  // bf16: four tensor cores of 512, less what their issue costs
  constexpr double kBytesPerCycle = 70;         // L2 to one SM
  constexpr double kLoadLatency = 2500;         // of a stage, under load: `stages` of them are in flight
  constexpr double kLeastStep = 230;            // barriers and issue
  constexpr double kByteCycles = 0.00055;       // what a loaded byte takes from the products (shared memory, power)
  constexpr double kFillCycles = 850;           // first load to first product
  constexpr double kStoreCycles = 0.012;        // per element of a tile
  constexpr double kExchangeCycles = 0.24;      // per element of a partial tile sent through distributed shared memory
  constexpr double kMeetCycles = 600;           // a cluster's blocks waiting for each other
  constexpr double kMeetCyclesPerBlock = 60;
  constexpr double kTurnCycles = 200;       // from one consumer's tile to the other's in ping-pong
  constexpr double kMulticastCycles = 280;  // neighbours in lock step, once per launch

  const Tile& shape = kTiles[static_cast<std::size_t>(schedule.tile)];
  const double elements = static_cast<double>(shape.block_m()) * shape.block_n;
  const std::int64_t blocks = block_count(schedule);
  const double sharing = blocks > sm_count ? shape.blocks_per_sm : 1;  // blocks that divide an SM's resources
  const auto waves = static_cast<double>(ceil_div(blocks, resident_blocks(schedule, sm_count)));
  const auto steps = static_cast<double>(ceil_div(ceil_div(problem.k, kBlockK), schedule.splits));

  const double load_bytes = (shape.block_m() + static_cast<double>(shape.block_n) / schedule.multicast) * kBlockK * 2;
  const double step = std::max({sharing * elements * kBlockK / kFmaPerCycle, sharing * load_bytes / kBytesPerCycle,
                                kLoadLatency / schedule.stages, kLeastStep}) +
                      kByteCycles * load_bytes;
  const double store = sharing * elements * kStoreCycles;
  const double once = schedule.multicast > 1 ? kMulticastCycles : 0;
  if (shape.pingpong) return once + kFillCycles + 2 * store + waves * (steps * step + kTurnCycles);
  double tile = kFillCycles + steps * step;
  if (schedule.splits > 1)
    tile += kMeetCycles + kMeetCyclesPerBlock * schedule.splits + sharing * elements * kExchangeCycles;
  else
    tile += store;
  return once + waves * tile;
}

Schedule choose(const Problem& problem, int sm_count) {
  const std::int64_t steps = ceil_div(problem.k, kBlockK);
  Schedule best;
  double least = std::numeric_limits<double>::infinity();
  for (int tile = 0; tile < static_cast<int>(kTiles.size()); ++tile) {
    for (const int multicast : {1, 2}) {
      if (multicast > 1 && problem.m <= kTiles[static_cast<std::size_t>(tile)].block_m()) continue;
      for (const int splits : {1, 2, 4, 8}) {
        if (splits > steps || multicast * splits > 8) continue;
        if (splits > 1 && !can_split(kTiles[static_cast<std::size_t>(tile)])) continue;
        const Schedule schedule = make_schedule(problem, tile, multicast, splits, sm_count);
        const double cycles = modelled_cycles(problem, schedule, sm_count);
        if (cycles < least) {
          least = cycles;
          best = schedule;
        }
      }
    }
  }
  return best;
}

}  // namespace noisefloor::gemm
