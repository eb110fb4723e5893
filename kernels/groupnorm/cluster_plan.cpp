#include "kernels/groupnorm/cluster_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace noisefloor::groupnorm {
namespace {

constexpr int kSharedBytesPerSm = 228 * 1024;
constexpr int kThreadsPerSm = 65536 / 56;  // of the 56 registers that the kernel takes
constexpr int kThreadChoices[] = {64, 96, 128, 192, 288, 384, 480};

// SMs that clusters of `blocks` can use: a cluster lies within one GPC, and GPCs of 16 or 18 SMs leave a rest. The
// shares are what cudaOccupancyMaxActiveClusters says of an H200 (132, 132, 124, 120 and 112 of 132).
double usable_sms(int blocks, int sm_count) {
  const double share = blocks <= 2 ? 1.0 : blocks == 4 ? 0.94 : blocks == 8 ? 0.91 : 0.85;
  return share * sm_count;
}

// A guess at microseconds, but for a part that all plans of a problem share, good for comparing plans: the coefficients
// were fitted to the times of 8668 plans of 117 problems (README). A wave of resident clusters costs latency, of the
// cluster, of each thread's accesses and of the threads to reduce; rows that are no multiple of 32 or 64 bytes cost
// memory traffic.
double estimate(const Problem& p, const ClusterPlan& plan, int sm_count) {
  constexpr int kReserved = 1024;  // the driver's, of each block
  const std::int64_t units = p.n * (p.groups / plan.bundle);
  const std::int64_t blocks = units * plan.blocks;
  const std::int64_t fit =
      std::min<std::int64_t>(std::clamp(kSharedBytesPerSm / (plan.shared_bytes() + kReserved), 1, 16),
                             std::max(kThreadsPerSm / plan.threads, 1));
  const auto active = static_cast<double>(std::min<std::int64_t>(fit, (blocks + sm_count - 1) / sm_count));
  const auto slots = static_cast<double>(fit);
  const double resident = std::max(std::floor(usable_sms(plan.blocks, sm_count) * slots / plan.blocks), 1.0);
  const double waves = std::ceil(static_cast<double>(units) / resident);
  const double accesses = static_cast<double>(plan.rows) * plan.columns;
  const double per_wave = (plan.blocks > 1 ? 0.85 : 0.0) + 0.00017 * accesses +
                          (0.0068 * active + 0.0335) * accesses / plan.threads +
                          (0.0013 + 0.00033 * active) * plan.threads;
  const int bytes = plan.columns * 16;
  const double unused = plan.blocks == 16 ? 0.088 : plan.blocks == 8 ? 0.051 : 0.0;  // SMs that no such cluster can use
  const double waste = (1.76 * ((32 - bytes % 32) % 32) + 0.151 * ((64 - bytes % 64) % 64)) / bytes + unused;
  const double traffic_us = 4.0 * static_cast<double>(p.elements()) / 4.25e6;
  return waves * per_wave + waste * traffic_us;
}

// Whether eight channels from a multiple of 8 on lie in two groups at most.
bool spans_two_groups(std::int64_t width) {
  return width + std::gcd(width, std::int64_t{kClusterLanes}) >= kClusterLanes;
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
  plan.entries = spans_two_groups(p.channels_per_group()) ? 2 : kClusterLanes;
  if (plan.rows > kSharedBytesPerBlock / (plan.columns * 16) || plan.shared_bytes() > kSharedBytesPerBlock)
    return std::nullopt;
  return plan;
}

std::optional<ClusterPlan> choose_cluster_plan(const Problem& p, int sm_count) {
  std::optional<ClusterPlan> best;
  double least = 0;
  for (int bundle = 1; bundle <= p.groups; ++bundle) {
    if (p.groups % bundle != 0) continue;
    for (int blocks = 1; blocks <= kMaxClusterBlocks; blocks *= 2) {
      if (blocks > 1 && p.hw < 8 * blocks) break;  // too few rows to share out
      for (const int threads : kThreadChoices) {
        const auto plan = make_cluster_plan(p, bundle, blocks, threads);
        if (!plan) continue;
        const double us = estimate(p, *plan, sm_count);
        if (best && us >= least) continue;
        best = plan;
        least = us;
      }
    }
  }
  return best;
}

}  // namespace noisefloor::groupnorm
