#include "kernels/groupnorm/grid_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/core/by_shape.h"

namespace noisefloor::groupnorm {
namespace {

constexpr int kLineBytes = 128;
constexpr int kWord = 8;

constexpr int kSectorBytes = 32;
constexpr double kEnoughBytes = 320e3;  // on an SM: timed plans that held more were no faster

// How good a plan is, fitted to the choice among timed plans of 12 problems (docs/experiments/groupnorm): more bytes on
// chip keep memory busy for longer while a team reduces, and more teams do so more evenly; a last round in which some
// teams have nothing to do is lost; rows that do not begin and end with lines cost 5 %. Those that split sectors were
// not timed: a guess.
double merit(const Problem& p, const GridPlan& plan) {
  const ClusterPlan& stripe = plan.stripe;
  const int row_bytes = stripe.columns * 16;
  const double on_chip = std::min(static_cast<double>(stripe.rows) * row_bytes, kEnoughBytes);
  const auto units = static_cast<double>(p.n * (p.groups / stripe.bundle));
  const double busy = units / (plan.teams * std::ceil(units / plan.teams));
  const double lines = row_bytes % kLineBytes == 0 ? 1.0 : row_bytes % kSectorBytes == 0 ? 0.95 : 0.7;
  return std::sqrt(on_chip) * busy * (1.0 - 0.2 / plan.teams) * lines * (1.0 - 16.0 / row_bytes);
}

}  // namespace

std::optional<GridPlan> make_grid_plan(const Problem& p, int sm_count, int bundle, int teams) {
  if (teams > sm_count || teams > p.n * (p.groups / bundle)) return std::nullopt;
  const int blocks = sm_count / teams;
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
    std::optional<GridPlan> best;
    double most = 0;
    for (int bundle = 1; bundle <= p.groups; ++bundle) {
      if (p.groups % bundle != 0) continue;
      for (int teams = 1; teams <= kMaxGridTeams; ++teams) {
        const auto plan = make_grid_plan(p, sm_count, bundle, teams);
        if (!plan) continue;
        const double value = merit(p, *plan);
        if (best && value <= most) continue;
        best = plan;
        most = value;
      }
    }
    return best;
  });
}

std::size_t grid_part_words(const Problem& p, const GridPlan& plan) {
  constexpr std::size_t kLine = kLineBytes / kWord;
  return (static_cast<std::size_t>(p.n * p.groups * plan.stripe.blocks) + kLine - 1) / kLine * kLine;
}

std::size_t grid_workspace_bytes(const Problem& p, const GridPlan& plan) {
  return (grid_part_words(p, plan) + static_cast<std::size_t>(p.n * p.groups)) * kWord;
}

}  // namespace noisefloor::groupnorm
