#include "kernels/groupnorm/cluster_plan.h"

#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "kernels/core/by_shape.h"
#include "kernels/core/variant.h"

namespace noisefloor::groupnorm {
namespace {

constexpr int kSmsOfH200 = 132;
constexpr int kThreadChoices[] = {64, 96, 128, 160, 192, 256, 288, 384, 480};
constexpr int kFewestPaired = 256;  // threads of a block that shares its SM with one other

// SMs that clusters of `blocks` can use: a cluster lies within one GPC, and GPCs of 16 or 18 SMs leave a rest. The
// shares are what cudaOccupancyMaxActiveClusters says of an H200 (132, 132, 124, 120 and 112 of 132).
double usable_sms(int blocks, int sm_count) {
  const double share = blocks <= 2 ? 1.0 : blocks == 4 ? 0.94 : blocks == 8 ? 0.91 : 0.85;
  return share * sm_count;
}

// A guess at what a plan costs, good for comparing the plans of a problem: the coefficients were fitted to minimise
// what the choice loses against the best of 20008 timed plans of 121 problems (docs/experiments/groupnorm). A wave of
// resident clusters costs latency: of the cluster, of each thread's accesses, of the threads to reduce and of the
// rounds that reduce them. Rows that are not a multiple of 32 or 64 bytes, and SMs that no cluster can use, cost memory
// traffic.
double estimate(const Problem& p, const ClusterPlan& plan, int sm_count) {
  const std::int64_t units = p.n * (p.groups / plan.bundle);
  const std::int64_t blocks = units * plan.blocks;
  const auto active =
      static_cast<double>(std::min<std::int64_t>(blocks_per_sm(plan), (blocks + sm_count - 1) / sm_count));
  const double waves = std::ceil(static_cast<double>(units) / resident_clusters(plan, sm_count));
  const int threads = plan.columns * plan.tile_rows;
  const double accesses = static_cast<double>(plan.rows) * plan.pixels * plan.columns / threads;  // of a thread
  const int teams = std::max(plan.threads / 16, 1);
  const int rounds = (plan.bundle + teams - 1) / teams;  // groups that a team reduces one after another
  const auto columns_of_group = static_cast<double>((p.channels_per_group() + 7) / 8 + 1);
  const double steps = rounds * columns_of_group * ((plan.tile_rows + 15) / 16);
  const double shared = std::max(accesses - plan.held, 0.0);
  const double per_wave = (plan.blocks > 1 ? 4.1 + 0.061 * plan.blocks : 0.0) + (0.119 + 0.042 * active) * accesses +
                          0.356 * shared + (shared > 0 ? 0.91 : 0.0) + (plan.held == 0 ? 2.0 : 0.0) +
                          (0.0082 + 0.0153 * active) * threads + 0.2 * steps + 1.57 * (rounds - 1);
  const double last = waves > 1 ? 0.00289 * plan.rows * plan.pixels * plan.columns : 0.0;  // loads or writes only
  const int bytes = plan.columns * 16;
  const double unused = plan.blocks == 8 ? 0.042 : 0.0;
  const double waste = (29.8 * ((32 - bytes % 32) % 32) + 0.62 * ((64 - bytes % 64) % 64)) / bytes + unused;
  const double traffic_us = 4.0 * static_cast<double>(p.elements()) / 4.25e6;
  return waves * per_wave + last + waste * traffic_us;
}

// The plan of the same bundles and clusters whose threads hold so many rows in registers that two blocks fit an SM,
// with as many threads as there are registers for. One block an SM loads, reduces and writes one after the other, and
// each wave of clusters pays the latency of all three; of two, one uses the memory while the other waits.
std::optional<ClusterPlan> paired(const Problem& p, const ClusterPlan& alone) {
  for (int threads = max_cluster_threads(kHeldByPairs); threads >= kFewestPaired; threads -= 32) {
    const auto plan = make_cluster_plan(p, alone.bundle, alone.blocks, threads, kHeldByPairs);
    if (plan && blocks_per_sm(*plan) >= 2) return plan;
  }
  return std::nullopt;
}

}  // namespace

bool spans_two_groups(std::int64_t channels_per_group) {
  return channels_per_group + std::gcd(channels_per_group, std::int64_t{kClusterLanes}) >= kClusterLanes;
}

std::string ClusterPlan::text() const {
  return "bundle=" + std::to_string(bundle) + ",blocks=" + std::to_string(blocks) +
         ",threads=" + std::to_string(columns * tile_rows) + ",held=" + std::to_string(held);
}

int blocks_per_sm(const StripePlan& plan, int shared_bytes, int registers) {
  const int whole_warps = (plan.columns * plan.tile_rows + 31) / 32 * 32;
  return std::max(std::min({kSharedBytesPerSm / (shared_bytes + kReservedBytes), 65536 / (registers * whole_warps),
                            2048 / whole_warps, 32}),
                  1);
}
int blocks_per_sm(const ClusterPlan& plan) {
  return blocks_per_sm(plan, plan.shared_bytes(), cluster_registers(plan.held));
}

int resident_clusters(int blocks_of_cluster, int of_sm, int sm_count) {
  return std::max(static_cast<int>(usable_sms(blocks_of_cluster, sm_count) * of_sm / blocks_of_cluster), 1);
}
int resident_clusters(const ClusterPlan& plan, int sm_count) {
  return resident_clusters(plan.blocks, blocks_per_sm(plan), sm_count);
}

ClusterResidence cluster_residence(const ClusterPlan& plan, std::int64_t units, int sm_count) {
  constexpr int kOnlyOne = kSharedBytesPerSm / 2;  // with the driver's share, two are more than an SM has
  if (sm_count != kSmsOfH200) return {plan.shared_bytes(), true};
  if (static_cast<double>(units * plan.blocks) <= usable_sms(plan.blocks, sm_count))
    return {std::max(plan.shared_bytes(), kOnlyOne), true};
  return {plan.shared_bytes(), units > resident_clusters(plan, sm_count)};
}

std::optional<ClusterPlan> cut_rows(const Problem& p, int bundle, int blocks, int threads, int held) {
  const std::int64_t width = bundle * p.channels_per_group();
  if (p.groups % bundle != 0 || width % kClusterLanes != 0) return std::nullopt;
  ClusterPlan plan;
  plan.bundle = bundle;
  plan.blocks = blocks;
  plan.pixels = p.down() ? 4 : 1;
  plan.rows = static_cast<int>((p.y_pixels() + blocks - 1) / blocks);
  plan.columns = static_cast<int>(width / kClusterLanes);
  // Whole warps' worth of threads, and no more than have a row each.
  plan.tile_rows = std::max(std::min(threads / plan.columns, plan.rows), (32 + plan.columns - 1) / plan.columns);
  plan.held = held;
  plan.shared_rows = std::max(plan.rows - plan.held_rows() * plan.tile_rows, 0);
  plan.threads = plan.columns * plan.tile_rows / 32 * 32;
  plan.entries = spans_two_groups(p.channels_per_group()) ? 2 : kClusterLanes;
  if (plan.shared_rows > kSharedBytesPerBlock / (plan.pixels * plan.columns * 16)) return std::nullopt;
  return plan;
}

std::optional<ClusterPlan> make_cluster_plan(const Problem& p, int bundle, int blocks, int threads, int held) {
  // Longer images fit no cluster even one column wide; and what follows stays in int.
  if (p.hw > std::int64_t{kMaxClusterBlocks} * kSharedBytesPerBlock / 16) return std::nullopt;
  const auto plan = cut_rows(p, bundle, blocks, threads, held);
  if (!plan || held % plan->pixels != 0 || plan->rows <= (plan->held_rows() - 1) * plan->tile_rows ||
      plan->tile_rows * plan->columns > max_cluster_threads(held) || plan->shared_bytes() > kSharedBytesPerBlock)
    return std::nullopt;
  return plan;
}

std::optional<ClusterPlan> estimated_cluster_plan(const Problem& p, int sm_count) {
  std::vector<ClusterPlan> plans;
  each_cut(p.groups, p.hw, [&](int bundle, int blocks) {
    for (const int threads : kThreadChoices)
      for (const int held : kHeldChoices)
        if (const auto plan = make_cluster_plan(p, bundle, blocks, threads, held)) plans.push_back(*plan);
  });
  const auto best = cheapest(plans, [&](const ClusterPlan& plan) { return estimate(p, plan, sm_count); });
  if (!best || blocks_per_sm(*best) > 1 || p.n * (p.groups / best->bundle) <= resident_clusters(*best, sm_count))
    return best;
  const auto pair = paired(p, *best);
  return pair ? pair : best;
}

std::optional<ClusterPlan> choose_cluster_plan(const Problem& p, int sm_count) {
  return remembered(std::array{p.n, p.hw, p.channels, p.groups, p.down_w, std::int64_t{sm_count}}, [&] {
    const MeasuredPlans measured = measured_plans();
    if (sm_count != measured.sm_count) return estimated_cluster_plan(p, sm_count);
    const auto shape = [](const auto& of) { return std::tuple(of.n, of.hw, of.channels, of.groups, of.down_w); };
    Problem alone = p;
    alone.down_w = 0;
    for (const Problem& timed : {p, alone}) {
      const MeasuredPlan* row = find_measured(measured.plans, shape(timed), shape);
      if (row == nullptr) continue;
      if (const auto plan = make_cluster_plan(p, row->bundle, row->blocks, row->threads, row->held)) return plan;
    }
    return estimated_cluster_plan(p, sm_count);
  });
}

std::vector<Choice> cluster_choices(const Problem& p, DType, const DeviceInfo& device) {
  constexpr int kLeastThreads = 64, kMostThreads = 512, kThreadStep = 32;
  std::vector<Choice> choices;
  std::set<std::string> seen;
  if (p.coefficients) return choices;
  const auto add = [&](const std::optional<ClusterPlan>& plan) {
    if (!plan) return;
    if (seen.insert(plan->text()).second) choices.push_back({plan->text(), choices.empty()});
  };
  add(estimated_cluster_plan(p, device.sm_count));
  if (choices.empty()) return choices;
  each_cut(p.groups, p.hw, [&](int bundle, int blocks) {
    for (int threads = kLeastThreads; threads <= kMostThreads; threads += kThreadStep)
      for (int held = 0; held <= kHeldByPairs; held += 2) add(make_cluster_plan(p, bundle, blocks, threads, held));
  });
  return choices;
}

std::optional<ClusterPlan> parse_cluster_choice(const Problem& p, std::string_view choice) {
  return plan_of_text(choice, [&](const auto& of) -> std::optional<ClusterPlan> {
    if (p.coefficients || of[3] < 0 || of[3] > kHeldByPairs || of[3] % 2 != 0) return std::nullopt;
    return make_cluster_plan(p, of[0], of[1], of[2], of[3]);
  });
}

}  // namespace noisefloor::groupnorm
