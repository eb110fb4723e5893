#include "kernels/groupnorm/grid_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

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
  const double narrow = plan.streamed_rows() > 0 && row_bytes < 2 * kLineBytes ? 1.1 : 1;  // as timed
  return std::ceil(units / plan.teams) *
         (narrow * traffic_us(2 * once, std::max(once - held, 0.0), row_bytes) + kGridGap / plan.teams);
}

// The plans that hold all rows, or those that do not.
template <class Visit>
void each_grid_plan(const Problem& p, int sm_count, int held, const Visit& visit) {
  for (int bundle = 1; bundle <= p.groups; ++bundle) {
    if (p.groups % bundle != 0) continue;
    for (int teams = 1; teams <= kMaxGridTeams; ++teams)
      if (const auto plan = make_grid_plan(p, sm_count, bundle, teams, held)) visit(*plan);
  }
}

std::string text_of(const GridPlan& plan) {
  return "bundle=" + std::to_string(plan.stripe.bundle) + ",teams=" + std::to_string(plan.teams) +
         ",held=" + std::to_string(plan.stripe.held);
}

}  // namespace

double traffic_us(double once, double again, double row_bytes) {
  constexpr double kBytesPerUs = 0.93 * 4.28e6, kKeptByL2 = 16e6;
  const double lines = std::fmod(row_bytes, kLineBytes) == 0
                           ? row_bytes / kLineBytes
                           : std::max((row_bytes - kSectorBytes) / kLineBytes + 1, 1.0);
  return (once + std::max(again - kKeptByL2, 0.0)) / kBytesPerUs * lines * kLineBytes / row_bytes;
}

std::optional<ClusterPlan> cut_least_rows(const Problem& p, int bundle, int blocks) {
  Problem least = p;
  least.hw = blocks * (kGridThreads / std::max<std::int64_t>(bundle * p.channels_per_group() / kClusterLanes, 1));
  const auto stripe = cut_rows(least, bundle, blocks, kGridThreads, 0);
  return stripe && stripe->columns * stripe->tile_rows <= kGridThreads ? stripe : std::nullopt;
}

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

std::optional<GridPlan> choose_grid_plan(const Problem& p, int sm_count) {
  return remembered(std::array{p.n, p.hw, p.channels, p.groups, std::int64_t{sm_count}}, [&] {
    constexpr double kSurely = 0.9;  // of estimates that are alike the plan that reads once is taken
    std::optional<GridPlan> held, streamed;
    double most = 0, least = 0;
    each_grid_plan(p, sm_count, kGridHeld, [&](const GridPlan& plan) {
      const double value = merit(p, plan);
      if (held && value <= most) return;
      held = plan;
      most = value;
    });
    each_grid_plan(p, sm_count, 0, [&](const GridPlan& plan) {
      const double cost = estimate(p, plan);
      if (streamed && cost >= least) return;
      streamed = plan;
      least = cost;
    });
    return streamed && (!held || least < kSurely * estimate(p, *held)) ? streamed : held;
  });
}

std::vector<Choice> grid_choices(const Problem& p, DType, const DeviceInfo& device) {
  constexpr double kNear = 1.4;
  const auto chosen = choose_grid_plan(p, device.sm_count);
  if (!chosen) return {};
  const double most = kNear * estimate(p, *chosen);
  std::vector<Choice> choices{{text_of(*chosen), true}};
  for (const int held : {kGridHeld, 0})
    each_grid_plan(p, device.sm_count, held, [&](const GridPlan& plan) {
      const std::string text = text_of(plan);
      if (estimate(p, plan) <= most && text != choices[0].text) choices.push_back({text});
    });
  return choices;
}

std::optional<GridPlan> parse_grid_choice(const Problem& p, int sm_count, std::string_view choice) {
  int bundle = 0, teams = 0, held = 0;
  if (std::sscanf(std::string(choice).c_str(), "bundle=%d,teams=%d,held=%d", &bundle, &teams, &held) != 3 ||
      bundle < 1 || teams < 1 || (held != 0 && held != kGridHeld) || p.groups % bundle != 0)
    return std::nullopt;
  const auto plan = make_grid_plan(p, sm_count, bundle, teams, held);
  return plan && text_of(*plan) == choice ? plan : std::nullopt;
}

std::size_t grid_part_words(const Problem& p, int blocks) {
  constexpr std::size_t kLine = kLineBytes / kWord;
  return (static_cast<std::size_t>(p.n * p.groups * blocks) + kLine - 1) / kLine * kLine;
}

std::size_t grid_workspace_bytes(const Problem& p, int blocks) {
  return (grid_part_words(p, blocks) + static_cast<std::size_t>(p.n * p.groups)) * kWord;
}

}  // namespace noisefloor::groupnorm
