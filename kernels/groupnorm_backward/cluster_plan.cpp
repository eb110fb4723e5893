#include "kernels/groupnorm_backward/cluster_plan.h"

#include <cmath>

#include "kernels/core/by_shape.h"
#include "kernels/groupnorm/grid_plan.h"

namespace noisefloor::groupnorm_backward {
namespace {

// A guess at what a plan costs, in cycles of an SM: its memory traffic, six bytes an element or eight; the instructions
// of its rows and of what a thread does once; and what a block does one after the other, waiting, and some of what its
// SM does for all. The larger of the three hides most of the others, since clusters are out of step. Of a round that is
// not full some clusters have no unit: the others' memory is free, but they wait as long.
double estimate(const Problem& p, const ClusterPlan& plan, int sm_count) {
  // Fitted to the timed plans of 33 shapes (docs/experiments/groupnorm_backward).
  constexpr double kBytesPerCycle = 28.8, kOfRow = 24.7,
                   kOfThread = 267;  // an SM's four schedulers issue a warp's at once
  constexpr double kStart = 9900, kSteps = 5430, kLatencyOfRow = 262, kRound = 2646, kOfAll = 0.295;
  const auto units = static_cast<double>(p.n * (p.groups / plan.bundle));
  const double rounds = std::max(units / resident_clusters(plan, sm_count), 1.0);
  const double blocks = std::min<double>(blocks_per_sm(plan), std::ceil(units * plan.blocks / sm_count));
  const int warps = (plan.columns * plan.tile_rows + 31) / 32, bytes = plan.columns * 16;
  const double rows = std::ceil(static_cast<double>(plan.rows) / plan.tile_rows);
  const double waste = 1 + (2.8 * (bytes % 32 != 0) * 16 + 1.04 * ((64 - bytes % 64) % 64)) / bytes;
  const double memory = blocks * (p.residual ? 8 : 6) * plan.rows * plan.channels() * waste / kBytesPerCycle;
  const double issue = blocks * warps * (kOfThread + kOfRow * rows);
  const double turns =
      std::ceil(16.0 * plan.bundle / plan.threads) +
      std::ceil(1.0 * plan.channels() * plan.lanes() / plan.threads) * plan.kept_rows() / plan.lanes() / 8;
  const double waits = kSteps + kRound * turns + kLatencyOfRow * rows + kOfAll * (memory + issue) / blocks;
  return kStart + std::hypot(rounds * memory, rounds * issue, (rounds + std::ceil(rounds)) / 2 * waits);
}

// Those whose clusters stay.
std::vector<ClusterPlan> cluster_plans(const Problem& p) {
  std::vector<ClusterPlan> plans;
  groupnorm::each_cut(p.groups, p.hw, [&](int bundle, int blocks) {
    for (const int threads : {64, 128, 192, 256, kMaxClusterThreads})
      if (const auto plan = make_cluster_plan(p, bundle, blocks, threads, true)) plans.push_back(*plan);
  });
  return plans;
}

}  // namespace

std::string ClusterPlan::text() const {
  return "bundle=" + std::to_string(bundle) + ",blocks=" + std::to_string(blocks) +
         ",threads=" + std::to_string(columns * tile_rows) + ",stay=" + std::to_string(int{stay}) +
         ",wide=" + std::to_string(int{wide});
}

int blocks_per_sm(const ClusterPlan& plan) {
  constexpr int kRegisters = 80, kWideRegisters = 128;  // of kMaxClusterThreads, of kWideThreads
  return groupnorm::blocks_per_sm(plan, plan.shared_bytes(), plan.wide ? kWideRegisters : kRegisters);
}

int resident_clusters(const ClusterPlan& plan, int sm_count) {
  return groupnorm::resident_clusters(plan.blocks, blocks_per_sm(plan), sm_count);
}

int launch_bytes(const ClusterPlan& plan, int units, int sm_count) {
  const int bytes = plan.shared_bytes(), on_one = (units * plan.blocks + sm_count - 1) / sm_count;
  // How many SMs larger clusters can use is known of an H200 alone, and one too many would be a second wave.
  if (plan.blocks > 2 || on_one > blocks_per_sm(plan)) return bytes;
  constexpr int kAtOnce = 128;  // shared memory is handed out by so many bytes
  return std::max(bytes, groupnorm::kSharedBytesPerSm / (on_one + 1) - groupnorm::kReservedBytes + kAtOnce);
}

std::optional<ClusterPlan> make_cluster_plan(const Problem& p, int bundle, int blocks, int threads, bool stay,
                                             bool wide) {
  // Longer images fit no cluster even one column wide; and what follows stays in int.
  if (p.hw > std::int64_t{groupnorm::kMaxClusterBlocks} * groupnorm::kSharedBytesPerBlock / 32) return std::nullopt;
  const auto cut = groupnorm::cut_rows(forward_of(p), bundle, blocks, threads, 0);
  if (!cut) return std::nullopt;
  ClusterPlan plan{*cut};
  plan.stay = stay, plan.wide = wide;
  if (plan.tile_rows * plan.columns > (wide ? kWideThreads : kMaxClusterThreads) ||
      plan.shared_bytes() > groupnorm::kSharedBytesPerBlock)
    return std::nullopt;
  return plan;
}

// Whether units outnumber the clusters that run at once.
static bool takes_turns(const Problem& p, const ClusterPlan& plan, int sm_count) {
  return p.n * (p.groups / plan.bundle) > resident_clusters(plan, sm_count);
}

// The plan with the most wide threads that leave an SM as many blocks; without such itself. Where those had fewer
// blocks they were slower, and with a residual some launches were (docs/experiments/groupnorm_backward).
static ClusterPlan widened(const Problem& p, const ClusterPlan& plan) {
  for (const int threads : {kWideThreads, 192, 128})
    if (const auto wide = make_cluster_plan(p, plan.bundle, plan.blocks, threads, true, true);
        wide && blocks_per_sm(*wide) >= blocks_per_sm(plan))
      return *wide;
  return plan;
}

std::optional<ClusterPlan> choose_cluster_plan(const Problem& p, int sm_count) {
  return remembered(std::array{p.n, p.hw, p.channels, p.groups, std::int64_t{p.residual}, std::int64_t{sm_count}}, [&] {
    const auto best =
        groupnorm::cheapest(cluster_plans(p), [&](const ClusterPlan& plan) { return estimate(p, plan, sm_count); });
    return best && !p.residual && takes_turns(p, *best, sm_count) ? widened(p, *best) : best;
  });
}

std::vector<Choice> cluster_choices(const Problem& p, DType, const DeviceInfo& device) {
  constexpr double kNear = 1.6;
  const auto chosen = choose_cluster_plan(p, device.sm_count);
  if (!chosen) return {};
  const double most = kNear * estimate(p, *chosen, device.sm_count);
  std::vector<Choice> choices{{chosen->text(), true}};
  const auto add = [&](ClusterPlan plan, bool stay) {
    plan.stay = stay;
    if (std::ranges::count(choices, plan.text(), &Choice::text) == 0) choices.push_back({plan.text()});
  };
  for (const ClusterPlan& plan : cluster_plans(p)) {
    if (estimate(p, plan, device.sm_count) > most) continue;
    add(plan, true);
    if (!takes_turns(p, plan, device.sm_count)) continue;
    add(plan, false);
    add(widened(p, plan), true);
  }
  return choices;
}

std::optional<ClusterPlan> parse_cluster_choice(const Problem& p, std::string_view choice) {
  return groupnorm::plan_of_text(
      choice, [&](const auto& of) { return make_cluster_plan(p, of[0], of[1], of[2], of[3] != 0, of[4] != 0); });
}

namespace {

// In us: kernels/groupnorm's estimate, for x and dy read twice where they are not held; its gap twice, for sums to one
// block and back (one gap chooses worse).
double estimate(const Problem& p, const GridPlan& plan) {
  const double row_bytes = plan.columns * 16.0, units = static_cast<double>(p.n * (p.groups / plan.bundle));
  const double once = plan.teams * static_cast<double>(p.hw) * row_bytes;
  const double of_row = plan.teams * plan.blocks * row_bytes;
  const double again = 2 * (once - std::min(once, plan.shared_rows * of_row));
  return std::ceil(units / plan.teams) *
         (groupnorm::traffic_us((p.residual ? 4 : 3) * once, again, row_bytes) + 2 * groupnorm::kGridGap / plan.teams);
}

std::optional<GridPlan> make_grid_plan(const Problem& p, int sm_count, int bundle, int teams) {
  if (teams > sm_count || teams > p.n * (p.groups / bundle)) return std::nullopt;
  const auto cut = groupnorm::cut_least_rows(forward_of(p), bundle, sm_count / teams);
  const std::int64_t rows = (p.hw + sm_count / teams - 1) / (sm_count / teams);
  if (!cut || rows > groupnorm::kMostGridRows) return std::nullopt;
  GridPlan plan;
  static_cast<groupnorm::StripePlan&>(plan) = *cut;
  plan.teams = teams;
  plan.rows = static_cast<int>(rows);
  plan.shared_rows = 0;
  const int room = (groupnorm::kSharedBytesPerBlock - plan.shared_bytes()) / (plan.columns * 16);
  plan.shared_rows = std::min(plan.rows, room / 2);
  return plan;
}

std::vector<GridPlan> all_plans(const Problem& p, int sm_count) {
  return groupnorm::grid_plans(p.groups,
                               [&](int bundle, int teams) { return make_grid_plan(p, sm_count, bundle, teams); });
}

}  // namespace

std::string GridPlan::text() const {
  return "bundle=" + std::to_string(bundle) + ",teams=" + std::to_string(teams);
}

std::optional<GridPlan> choose_grid_plan(const Problem& p, int sm_count) {
  return remembered(std::array{p.n, p.hw, p.channels, p.groups, std::int64_t{p.residual}, std::int64_t{sm_count}}, [&] {
    return groupnorm::cheapest(all_plans(p, sm_count), [&](const GridPlan& plan) { return estimate(p, plan); });
  });
}

std::vector<Choice> grid_choices(const Problem& p, DType, const DeviceInfo& device) {
  return groupnorm::choices_near(choose_grid_plan(p, device.sm_count), all_plans(p, device.sm_count),
                                 [&](const GridPlan& plan) { return estimate(p, plan); });
}

std::optional<GridPlan> parse_grid_choice(const Problem& p, int sm_count, std::string_view choice) {
  return groupnorm::plan_of(choice, all_plans(p, sm_count));
}

}  // namespace noisefloor::groupnorm_backward
