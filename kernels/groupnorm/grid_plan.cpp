#include "kernels/groupnorm/grid_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "kernels/core/by_shape.h"

namespace noisefloor::groupnorm {
namespace {

constexpr int kLineBytes = 128;
constexpr int kWord = 8;

constexpr int kSectorBytes = 32;
constexpr double kEnoughBytes = 320e3;  // on an SM: timed plans that held more were no faster

// How good a plan is that holds all rows, fitted to the choice among timed plans of 12 problems
// (docs/experiments/groupnorm): more bytes on chip keep memory busy for longer while a team reduces, and more teams do
// so more evenly; a last round in which some teams have nothing to do is lost; rows that do not begin and end with
// lines cost 5 %. Those that split sectors were not timed: a guess.
double merit(const Problem& p, const GridPlan& plan) {
  const ClusterPlan& stripe = plan.stripe;
  const int row_bytes = stripe.columns * 16;
  const double on_chip = std::min(static_cast<double>(stripe.rows) * row_bytes, kEnoughBytes);
  const auto units = static_cast<double>(p.n * (p.groups / stripe.bundle));
  const double busy = units / (plan.teams * std::ceil(units / plan.teams));
  const double lines = row_bytes % kLineBytes == 0 ? 1.0 : row_bytes % kSectorBytes == 0 ? 0.95 : 0.7;
  return std::sqrt(on_chip) * busy * (1.0 - 0.2 / plan.teams) * lines * (1.0 - 16.0 / row_bytes);
}

// What a plan takes, in us: each round of units its traffic, x twice where it is not held and L2 has lost it, and a gap
// between the last load and the first write, which other teams' traffic fills.
double estimate(const Problem& p, const GridPlan& plan) {
  const ClusterPlan& stripe = plan.stripe;
  const double row_bytes = stripe.columns * 16, units = static_cast<double>(p.n * (p.groups / stripe.bundle));
  const double held = static_cast<double>(stripe.rows - plan.streamed_rows()) * plan.blocks() * row_bytes;
  const double once = plan.teams * static_cast<double>(p.hw) * row_bytes;
  return std::ceil(units / plan.teams) *
         (traffic_us(2 * once, std::max(once - held, 0.0), row_bytes) + kGridGap / plan.teams);
}

}  // namespace

double traffic_us(double once, double again, double row_bytes) {
  constexpr double kBytesPerUs = 0.93 * 4.28e6, kKeptByL2 = 16e6;
  const double lines = std::fmod(row_bytes, kLineBytes) == 0
                           ? row_bytes / kLineBytes
                           : std::max((row_bytes - kSectorBytes) / kLineBytes + 1, 1.0);
  const double narrow = again > 0 && row_bytes < 2 * kLineBytes ? 1.1 : 1;  // as timed
  return narrow * (once + std::max(again - kKeptByL2, 0.0)) / kBytesPerUs * lines * kLineBytes / row_bytes;
}

std::optional<ClusterPlan> cut_least_rows(const Problem& p, int bundle, int blocks) {
  Problem least = p;
  least.hw = blocks * (kGridThreads / std::max<std::int64_t>(bundle * p.channels_per_group() / kClusterLanes, 1));
  const auto stripe = cut_rows(least, bundle, blocks, kGridThreads, 0);
  return stripe && stripe->columns * stripe->tile_rows <= kGridThreads ? stripe : std::nullopt;
}

namespace {

// The plan with these choices, or nothing where they do not fit the problem or the SMs: with `held` = kGridHeld all
// rows are held on chip, with 0 as many as shared memory has room for, which are not all.
std::optional<GridPlan> make_grid_plan(const Problem& p, int sm_count, int bundle, int teams, int held) {
  if (teams > sm_count || teams > p.n * (p.groups / bundle)) return std::nullopt;
  const int blocks = sm_count / teams;
  if (held == 0) {
    const auto stripe = cut_least_rows(p, bundle, blocks);
    if (!stripe) return std::nullopt;
    GridPlan plan{*stripe, teams};
    plan.stripe.shared_rows += (kSharedBytesPerBlock - plan.shared_bytes()) / (stripe->columns * 16);
    const std::int64_t rows = (p.hw + blocks - 1) / blocks;
    if (rows <= plan.stripe.shared_rows || rows > kMostGridRows) return std::nullopt;
    plan.stripe.rows = static_cast<int>(rows);
    return plan;
  }
  // Longer images do not fit even one column wide; and what follows stays in int.
  constexpr std::int64_t kMostRows = kSharedBytesPerBlock / 16 + kGridThreads * kGridHeld;
  if (p.hw > blocks * kMostRows) return std::nullopt;
  const auto stripe = cut_rows(p, bundle, blocks, kGridThreads, kGridHeld);
  if (!stripe || stripe->columns * stripe->tile_rows > kGridThreads) return std::nullopt;
  const GridPlan plan{*stripe, teams};
  if (plan.shared_bytes() > kSharedBytesPerBlock) return std::nullopt;
  return plan;
}

std::vector<GridPlan> plans_of(const Problem& p, int sm_count, int held) {
  return grid_plans(p.groups, [&](int bundle, int teams) { return make_grid_plan(p, sm_count, bundle, teams, held); });
}

std::vector<GridPlan> all_plans(const Problem& p, int sm_count) {
  std::vector<GridPlan> plans = plans_of(p, sm_count, kGridHeld);
  std::ranges::copy(plans_of(p, sm_count, 0), std::back_inserter(plans));
  return plans;
}

}  // namespace

std::string GridPlan::text() const {
  return "bundle=" + std::to_string(stripe.bundle) + ",teams=" + std::to_string(teams) +
         ",held=" + std::to_string(stripe.held);
}

std::optional<GridPlan> choose_grid_plan(const Problem& p, int sm_count) {
  return remembered(std::array{p.n, p.hw, p.channels, p.groups, std::int64_t{sm_count}}, [&] {
    constexpr double kSurely = 0.9;  // of estimates that are alike the plan that reads once is taken
    const auto held = cheapest(plans_of(p, sm_count, kGridHeld), [&](const GridPlan& plan) { return -merit(p, plan); });
    const auto streamed = cheapest(plans_of(p, sm_count, 0), [&](const GridPlan& plan) { return estimate(p, plan); });
    return streamed && (!held || estimate(p, *streamed) < kSurely * estimate(p, *held)) ? streamed : held;
  });
}

std::vector<Choice> grid_choices(const Problem& p, DType, const DeviceInfo& device) {
  return choices_near(choose_grid_plan(p, device.sm_count), all_plans(p, device.sm_count),
                      [&](const GridPlan& plan) { return estimate(p, plan); });
}

std::optional<GridPlan> parse_grid_choice(const Problem& p, int sm_count, std::string_view choice) {
  return plan_of(choice, all_plans(p, sm_count));
}

std::size_t grid_part_words(const Problem& p, int blocks) {
  constexpr std::size_t kLine = kLineBytes / kWord;
  return (static_cast<std::size_t>(p.n * p.groups * blocks) + kLine - 1) / kLine * kLine;
}

std::size_t grid_workspace_bytes(const Problem& p, int blocks) {
  return (grid_part_words(p, blocks) + static_cast<std::size_t>(p.n * p.groups)) * kWord;
}

}  // namespace noisefloor::groupnorm
