#include "kernels/gemm/schedule.h"

#include <algorithm>
#include <limits>

namespace noisefloor::gemm {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
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
  const std::int64_t blocks = schedule.m_clusters * schedule.n_tiles * schedule.cluster();
  const std::int64_t resident = std::int64_t{sm_count} * shape.blocks_per_sm / schedule.cluster() * schedule.cluster();
  schedule.grid = splits > 1 ? blocks : std::min(blocks, std::max<std::int64_t>(resident, schedule.cluster()));
  return schedule;
}

double modelled_cycles(const Problem& problem, const Schedule& schedule, int sm_count) {
  const Tile& shape = kTiles[static_cast<std::size_t>(schedule.tile)];
  constexpr double kFmaPerCycle = 2048;       // bf16, all four tensor cores of an SM
  constexpr double kL2BytesPerCycle = 36;     // of one SM when all read at once
  constexpr double kLatency = 1800;           // launch to the first products: descriptor, memory, barrier
  constexpr double kStoreBytesPerCycle = 32;  // of D
  constexpr double kReduce = 900;             // cluster barrier twice and one remote read

  const double m = shape.block_m();
  const double n = shape.block_n;
  const std::int64_t units = schedule.m_clusters * schedule.n_tiles * schedule.cluster();
  // Clusters must lie within a GPC; the SMs that are left over stay idle.
  const double clusters = std::max(1.0, static_cast<double>(sm_count / (schedule.cluster() > 2 ? 4 : 1) *
                                                            (schedule.cluster() > 2 ? 4 : 1) / schedule.cluster()));
  const double concurrent = clusters * schedule.cluster();
  const double waves = static_cast<double>(ceil_div(units, static_cast<std::int64_t>(concurrent)));
  const double steps = static_cast<double>(ceil_div(ceil_div(problem.k, kBlockK), schedule.splits));

  const double mma = m * n * kBlockK / kFmaPerCycle;
  const double load = (m + n / schedule.multicast) * kBlockK * 2 / kL2BytesPerCycle;
  const double step = std::max(mma, load);
  const double store = m * n * 2 / kStoreBytesPerCycle / schedule.splits;
  const double reduce = schedule.splits > 1 ? kReduce + m * n * 4 / 64 * 2 : 0;
  return kLatency + waves * (steps * step + store + reduce);
}

Schedule choose(const Problem& problem, int sm_count) {
  const std::int64_t steps = ceil_div(problem.k, kBlockK);
  Schedule best;
  double least = std::numeric_limits<double>::infinity();
  for (int tile = 0; tile < static_cast<int>(kTiles.size()); ++tile) {
    for (const int multicast : {2, 1}) {
      if (multicast > 1 && problem.m <= kTiles[static_cast<std::size_t>(tile)].block_m()) continue;
      for (const int splits : {1, 2, 4, 8}) {
        if (splits > steps || multicast * splits > 8) continue;
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
