#include "kernels/groupnorm_backward/cluster_plan.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <string>

#include "kernels/core/by_shape.h"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr int kSharedBytesPerSm = 228 * 1024, kReservedBytes = 1024;  // the driver's, of each block
constexpr int kRegisters = 80;
constexpr int kMaxPlanBlocks = groupnorm::kMaxClusterBlocks;

// A guess at what a plan costs, in cycles of an SM: each wave of clusters pays the latency of loads, of two exchanges
// and of the first and last accesses, which other blocks of the SM cover in part; the rest is memory traffic, six bytes
// an element, or arithmetic, three passes. Rows that split sectors or pairs of them cost traffic.
double estimate(const Problem& p, const ClusterPlan& plan, int sm_count) {
  constexpr double kLatency = 6000, kOfThread = 12, kBytesPerCycle = 15.5, kPasses = 0.21;
  constexpr double kEnoughThreads = 700;  // of an SM, to issue what it can
  const auto units = static_cast<double>(p.n * (p.groups / plan.bundle));
  const double waves = std::ceil(units / resident_clusters(plan, sm_count));
  const double blocks = std::min<double>(blocks_per_sm(plan), std::ceil(units * plan.blocks / sm_count));
  const int threads = plan.columns * plan.tile_rows, bytes = plan.columns * 16;
  const double elements = static_cast<double>(plan.rows) * plan.channels();  // of a block
  const double waste = 1 + (0.6 * (bytes % 32 != 0) * 16 + 0.3 * ((64 - bytes % 64) % 64)) / bytes;
  const double accesses = static_cast<double>(plan.rows) / plan.tile_rows;
  const double latency =
      kLatency + (plan.blocks > 1 ? 1000 + 100 * plan.blocks : 0) + 60 * accesses + kOfThread * threads;
  const double memory = 6 * elements * waste / kBytesPerCycle;
  const double arithmetic = kPasses * elements * std::max(1.0, kEnoughThreads / (blocks * threads));
  const double busy = blocks * std::max(memory, arithmetic);
  return waves * (busy + (latency + std::min(memory, arithmetic)) / std::sqrt(blocks));
}

std::string text_of(const ClusterPlan& plan) {
  return "bundle=" + std::to_string(plan.bundle) + ",blocks=" + std::to_string(plan.blocks) +
         ",threads=" + std::to_string(plan.columns * plan.tile_rows);
}

// Calls add(plan) for every one.
template <class Add>
void each_cluster_plan(const Problem& p, const Add& add) {
  constexpr int kLeastThreads = 64, kThreadStep = 32;
  for (int bundle = 1; bundle <= p.groups; ++bundle) {
    if (p.groups % bundle != 0) continue;
    for (int blocks = 1; blocks <= kMaxPlanBlocks; blocks *= 2) {
      if (blocks > 1 && p.hw < 8 * blocks) break;  // too few rows to share out
      for (int threads = kLeastThreads; threads <= kMaxClusterThreads; threads += kThreadStep)
        if (const auto plan = make_cluster_plan(p, bundle, blocks, threads)) add(*plan);
    }
  }
}

}  // namespace

int blocks_per_sm(const ClusterPlan& plan) {
  const int whole_warps = (plan.columns * plan.tile_rows + 31) / 32 * 32;
  return std::max(std::min({kSharedBytesPerSm / (plan.shared_bytes() + kReservedBytes),
                            65536 / (kRegisters * whole_warps), 2048 / whole_warps, 32}),
                  1);
}

// A cluster lies within one GPC, and GPCs leave a rest: kernels/groupnorm/cluster_plan.cpp.
int resident_clusters(const ClusterPlan& plan, int sm_count) {
  const double usable = plan.blocks <= 2 ? 1.0 : plan.blocks == 4 ? 0.94 : plan.blocks == 8 ? 0.91 : 0.85;
  return std::max(static_cast<int>(usable * sm_count * blocks_per_sm(plan) / plan.blocks), 1);
}

std::optional<ClusterPlan> make_cluster_plan(const Problem& p, int bundle, int blocks, int threads) {
  // Longer images fit no cluster even one column wide; and what follows stays in int.
  if (p.hw > std::int64_t{kMaxPlanBlocks} * groupnorm::kSharedBytesPerBlock / 32) return std::nullopt;
  const auto cut = groupnorm::cut_rows(statistics_of(p), bundle, blocks, threads, 0);
  if (!cut) return std::nullopt;
  const ClusterPlan plan{*cut};
  if (plan.tile_rows * plan.columns > kMaxClusterThreads || plan.shared_bytes() > groupnorm::kSharedBytesPerBlock)
    return std::nullopt;
  return plan;
}

std::optional<ClusterPlan> choose_cluster_plan(const Problem& p, int sm_count) {
  return remembered(std::array{p.n, p.hw, p.channels, p.groups, std::int64_t{sm_count}}, [&] {
    std::optional<ClusterPlan> best;
    double least = 0;
    each_cluster_plan(p, [&](const ClusterPlan& plan) {
      const double cost = estimate(p, plan, sm_count);
      if (best && cost >= least) return;
      best = plan;
      least = cost;
    });
    return best;
  });
}

std::vector<Choice> cluster_choices(const Problem& p, DType, const DeviceInfo& device) {
  const auto chosen = choose_cluster_plan(p, device.sm_count);
  if (!chosen) return {};
  std::vector<Choice> choices{{text_of(*chosen), true}};
  each_cluster_plan(p, [&](const ClusterPlan& plan) {
    const std::string text = text_of(plan);
    if (std::ranges::count(choices, text, &Choice::text) == 0) choices.push_back({text});
  });
  return choices;
}

std::optional<ClusterPlan> parse_cluster_choice(const Problem& p, std::string_view choice) {
  int bundle = 0, blocks = 0, threads = 0;
  if (std::sscanf(std::string(choice).c_str(), "bundle=%d,blocks=%d,threads=%d", &bundle, &blocks, &threads) != 3 ||
      bundle < 1 || blocks < 1 || blocks > kMaxPlanBlocks || !std::has_single_bit(static_cast<unsigned>(blocks)))
    return std::nullopt;
  const auto plan = make_cluster_plan(p, bundle, blocks, threads);
  return plan && text_of(*plan) == choice ? plan : std::nullopt;
}

}  // namespace noisefloor::groupnorm_backward
