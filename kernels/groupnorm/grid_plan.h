// How ptx_sm90a_grid cuts a problem: each image into bundles of groups, each bundle, by rows, into the blocks of one
// team; the GPU's SMs are shared out among the teams. Pure arithmetic, tested on the host.
#pragma once

#include "kernels/groupnorm/cluster_plan.h"

namespace noisefloor::groupnorm {

inline constexpr int kGridThreads = 512;  // of a block at most: one block an SM, 128 registers a thread
inline constexpr int kGridHeld = 16;      // rows that a thread, its first, holds in 64 of them
static_assert(kGridThreads * 128 == 65536 && kGridHeld * 4 == 64);
inline constexpr int kFewestGridSms = 78;            // of a GPU of sm_90 (H20)
inline constexpr int kMostGridRows = (1 << 21) - 1;  // of a block: the kernel divides them in float
inline constexpr int kMaxGridTeams = 16;             // more were no better

// Image-bundle pairs of a problem at most: the words in which the blocks tell their moments stay under 1.1 KiB each.
inline constexpr std::int64_t kMaxGridUnits = std::int64_t{1} << 16;

struct GridPlan {
  ClusterPlan stripe;  // of a block; stripe.blocks is the blocks of a team
  int teams = 1;       // team t takes the image-bundle pairs t, t + teams, ...

  // Rows of a block that it reads twice, since it cannot hold them; its threads then hold none.
  int streamed_rows() const { return stripe.held > 0 ? 0 : stripe.rows - stripe.shared_rows; }
  int blocks() const { return teams * stripe.blocks; }
  int shared_bytes() const {
    return stripe.shared_rows * stripe.columns * 16 +
           (stripe.sums() + stripe.bundle) * 2 * static_cast<int>(sizeof(float));
  }
  std::string text() const;  // "bundle=8,teams=2,held=16"
};

// What memory takes for bytes that are moved once and such as are read again, of which L2 has the last, in us. Of its
// rate rows use what they have of the lines that they touch. And what a team waits between its last load and its first
// write, in us. Both are of plans that hold all rows of 40 to 5,000 MB.
double traffic_us(double once, double again, double row_bytes);
inline constexpr double kGridGap = 11;

// A stripe of blocks whose threads have one row each, to which a plan adds rows; or nothing where the bundle does not
// fit the problem or the threads.
std::optional<ClusterPlan> cut_least_rows(const Problem&, int bundle, int blocks);

// Every plan that make(bundle, teams) has. What follows is made of such, here and in kernels/groupnorm_backward.
template <class Make>
auto grid_plans(std::int64_t groups, const Make& make) {
  std::vector<typename decltype(make(1, 1))::value_type> plans;
  for (int bundle = 1; bundle <= groups; ++bundle)
    for (int teams = 1; groups % bundle == 0 && teams <= kMaxGridTeams; ++teams)
      if (const auto plan = make(bundle, teams)) plans.push_back(*plan);
  return plans;
}

// The chosen one, then those whose cost is near its own.
template <class Plan, class Cost>
std::vector<Choice> choices_near(const std::optional<Plan>& chosen, const std::vector<Plan>& plans, const Cost& cost) {
  constexpr double kNear = 1.5;
  std::vector<Choice> choices;
  if (chosen) choices.push_back({chosen->text(), true});
  for (const Plan& plan : plans)
    if (cost(plan) <= kNear * cost(*chosen) && plan.text() != chosen->text()) choices.push_back({plan.text()});
  return choices;
}

template <class Plan>
std::optional<Plan> plan_of(std::string_view text, const std::vector<Plan>& plans) {
  const auto found = std::ranges::find(plans, text, &Plan::text);
  return found == plans.end() ? std::nullopt : std::optional(*found);
}

// The plan that the launcher takes, or nothing where no bundle is a multiple of 16 bytes wide.
std::optional<GridPlan> choose_grid_plan(const Problem&, int sm_count);

// Every plan of a problem near the chosen one's estimate, that one first, as text that parse_grid_choice reads.
std::vector<Choice> grid_choices(const Problem&, DType, const DeviceInfo&);
std::optional<GridPlan> parse_grid_choice(const Problem&, int sm_count, std::string_view choice);

// For teams of so many blocks, 8-byte words: [n * groups, blocks] moments, on to the next 128 bytes, then [n * groups]
// results.
std::size_t grid_part_words(const Problem&, int blocks);
std::size_t grid_workspace_bytes(const Problem&, int blocks);

}  // namespace noisefloor::groupnorm
