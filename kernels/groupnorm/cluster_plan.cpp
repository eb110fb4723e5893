#include "kernels/groupnorm/cluster_plan.h"

#include <algorithm>
#include <cmath>

namespace noisefloor::groupnorm {
namespace {

constexpr int kSharedBytesPerSm = 228 * 1024;
constexpr int kFewestThreads = 96;
constexpr int kThreadsPerSm = 1024;  // of 64 registers, which is what the kernel takes

// SMs that clusters of `blocks` can use: a cluster lies within one GPC, and GPCs of 16 or 18 SMs leave a rest. The
// shares are what cudaOccupancyMaxActiveClusters says of an H200 (132, 132, 124, 120 and 112 of 132).
double usable_sms(int blocks, int sm_count) {
  const double share = blocks <= 2 ? 1.0 : blocks == 4 ? 0.94 : blocks == 8 ? 0.91 : 0.85;
  return share * sm_count;
}

// What a choice of bundle and cluster size makes of an SM.
struct Load {
  std::int64_t vectors;  // 16-byte accesses of a block's tile
  std::int64_t blocks;   // that share an SM
  double waves;          // of resident clusters
};

Load load_of(const Problem& p, const ClusterPlan& plan, int sm_count) {
  constexpr int kReserved = 1024;  // the driver's, of each block
  const std::int64_t units = p.n * (p.groups / plan.bundle);
  const std::int64_t fit = std::clamp(kSharedBytesPerSm / (plan.shared_bytes() + kReserved), 1, 16);
  const double resident = std::max(usable_sms(plan.blocks, sm_count) * static_cast<double>(fit) / plan.blocks, 1.0);
  return {static_cast<std::int64_t>(plan.rows) * plan.columns,
          std::min(fit, (units * plan.blocks + sm_count - 1) / sm_count),
          std::ceil(static_cast<double>(units) / std::floor(resident))};
}

// Threads: three accesses each where that is few, at most what leaves the SM's blocks their registers.
int threads_for(const Load& load) {
  const std::int64_t most = load.blocks == 1 ? 480 : 11 * kThreadsPerSm / (16 * load.blocks);
  return static_cast<int>(std::max<std::int64_t>(kFewestThreads, std::min(most, load.vectors / 3)));
}

// A guess at microseconds, good for comparing plans: the coefficients were fitted to the times of every plan on 150
// problems (README). A wave costs latency (more in a cluster, more with wide rows, whose groups take longer to reduce)
// and instructions; rows that are no multiple of 32 or 64 bytes cost memory traffic.
double estimate(const Problem& p, const ClusterPlan& plan, const Load& load) {
  const double per_wave = 2.75 + (plan.blocks > 1 ? 0.51 : 0.0) + 0.17 * std::log2(plan.blocks) + 0.074 * plan.columns +
                          0.00055 * static_cast<double>(load.vectors) +
                          0.037 * static_cast<double>(load.vectors * load.blocks) / plan.threads;
  const int bytes = plan.columns * 16;
  const double waste = (1.77 * (bytes % 32 != 0 ? 16 : 0) + 0.23 * ((64 - bytes % 64) % 64)) / bytes +
                       (plan.blocks == 16 ? 0.064 : 0.0);  // of SMs that belong to no such cluster
  const double traffic_us = 4.0 * static_cast<double>(p.elements()) / 4.25e6;
  return load.waves * per_wave + waste * traffic_us;
}

}  // namespace

std::optional<ClusterPlan> make_cluster_plan(const Problem& p, int bundle, int blocks, int threads) {
  if (p.groups % bundle != 0) return std::nullopt;
  const std::int64_t width = bundle * p.channels_per_group();
  if (width % kClusterLanes != 0 || width / kClusterLanes > kMaxClusterThreads) return std::nullopt;
  // Longer images fit no cluster even one column wide; and what follows stays in int.
  if (p.hw > std::int64_t{kMaxClusterBlocks} * kSharedBytesPerBlock / 16) return std::nullopt;

  ClusterPlan plan;
  plan.bundle = bundle;
  plan.blocks = blocks;
  plan.rows = static_cast<int>((p.hw + blocks - 1) / blocks);
  plan.columns = static_cast<int>(width / kClusterLanes);
  plan.tile_rows = std::max(std::min(threads / plan.columns, plan.rows), (32 + plan.columns - 1) / plan.columns);
  plan.threads = plan.columns * plan.tile_rows / 32 * 32;
  plan.pitch = (plan.columns | 1) * 16;
  plan.parts = std::clamp(plan.threads / 32 / plan.columns, 1, (plan.rows + 31) / 32);
  if (plan.rows > kSharedBytesPerBlock / plan.pitch || plan.shared_bytes() > kSharedBytesPerBlock) return std::nullopt;
  return plan;
}

std::optional<ClusterPlan> choose_cluster_plan(const Problem& p, int sm_count) {
  std::optional<ClusterPlan> best;
  double least = 0;
  for (int bundle = 1; bundle <= p.groups; ++bundle) {
    for (int blocks = 1; blocks <= kMaxClusterBlocks; blocks *= 2) {
      if (blocks > 1 && p.hw < 8 * blocks) break;  // too few rows to share out
      const auto narrow = make_cluster_plan(p, bundle, blocks, kFewestThreads);
      if (!narrow) continue;
      const auto plan = make_cluster_plan(p, bundle, blocks, threads_for(load_of(p, *narrow, sm_count)));
      if (!plan) continue;
      const double us = estimate(p, *plan, load_of(p, *plan, sm_count));
      if (best && us >= least) continue;
      best = plan;
      least = us;
    }
  }
  return best;
}

}  // namespace noisefloor::groupnorm
