// How ptx_sm90a_grid cuts a problem: each image into bundles of groups, each bundle, by rows, into the blocks of one
// team; the GPU's SMs are shared out among the teams. Pure arithmetic, tested on the host.
#pragma once

#include <optional>

#include "kernels/groupnorm/cluster_plan.h"

namespace noisefloor::groupnorm {

inline constexpr int kGridThreads = 512;  // of a block at most: one block an SM, 128 registers a thread
inline constexpr int kGridHeld = 16;      // rows that a thread, its first, holds in 64 of them
static_assert(kGridThreads * 128 == 65536 && kGridHeld * 4 == 64);
inline constexpr int kMaxGridTeams = 16;   // more were no better
inline constexpr int kFewestGridSms = 78;  // of a GPU of sm_90 (H20); a problem that fits those fits the others

// Image-bundle pairs of a problem at most: the words in which the blocks tell their moments stay under 1.1 KiB each.
inline constexpr std::int64_t kMaxGridUnits = std::int64_t{1} << 16;

struct GridPlan {
  ClusterPlan stripe;  // of a block; stripe.blocks is the blocks of a team
  int teams = 1;       // team t takes the image-bundle pairs t, t + teams, ...

  int blocks() const { return teams * stripe.blocks; }
  int shared_bytes() const {
    return stripe.shared_rows * stripe.columns * 16 +
           (stripe.sums() + stripe.bundle) * 2 * static_cast<int>(sizeof(float));
  }
};

// The plan with these choices, or nothing where they do not fit the problem or the SMs.
std::optional<GridPlan> make_grid_plan(const Problem&, int sm_count, int bundle, int teams);

// The plan that the launcher takes, or nothing where no bundle fits the SMs' shared memory and registers. What fits
// some SMs fits more of them.
std::optional<GridPlan> choose_grid_plan(const Problem&, int sm_count);

// 8-byte words: [n * groups, stripe.blocks] moments, on to the next 128 bytes, then [n * groups] results.
std::size_t grid_part_words(const Problem&, const GridPlan&);
std::size_t grid_workspace_bytes(const Problem&, const GridPlan&);

}  // namespace noisefloor::groupnorm
