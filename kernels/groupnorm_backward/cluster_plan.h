// How ptx_sm90a cuts a problem: as kernels/groupnorm's does, but for x and dy, all of whose rows are in shared memory.
// Pure arithmetic, tested on the host.
#pragma once

#include "kernels/core/variant.h"
#include "kernels/groupnorm/cluster_plan.h"
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {

inline constexpr int kMaxClusterThreads = 384;  // of a block: two on an SM have 80 registers a thread
inline constexpr int kWideThreads = 256;        // or 128, with as many rows under way

struct ClusterPlan : groupnorm::StripePlan {
  bool stay = false;  // as many clusters as run at once take all units in turn; else a cluster has one
  bool wide = false;  // threads are few and have more rows and registers each: what a unit costs each of them is less

  std::string text() const;  // "bundle=2,blocks=8,threads=256,stay=1,wide=0"
  constexpr int channels() const { return columns * groupnorm::kClusterLanes; }
  // Rows of threads whose channels' sums are in shared memory at once; the others add theirs to them.
  constexpr int kept_rows() const { return tile_rows <= 16 ? tile_rows : (tile_rows + 1) / 2; }
  // Pairs of floats.
  constexpr int pairs() const { return kept_rows() * channels(); }
  constexpr int owned() const { return (channels() + blocks - 1) / blocks; }  // channels that a block adds over blocks
  // And mean and rstd of each group, its sums by block, for two units, and what they come to; those of the block's
  // channels, and of the owned ones by block, for two units.
  constexpr int all_pairs() const { return pairs() + 2 * (blocks + 1) * bundle + channels() + 2 * blocks * owned(); }
  constexpr int shared_bytes() const {
    const int barriers = 16, factors = 4 * channels();
    return 2 * shared_rows * columns * 16 + all_pairs() * 8 + factors + barriers;
  }
  // Lanes, a power of two, that add one channel's kept rows.
  constexpr int lanes() const {
    int lanes = 1;
    while (lanes < 32 && 2 * lanes * channels() <= threads && 2 * lanes <= kept_rows()) lanes *= 2;
    return lanes;
  }
};

// The plan with these choices, or nothing where they do not fit the problem or the SM.
std::optional<ClusterPlan> make_cluster_plan(const Problem&, int bundle, int blocks, int threads, bool stay = false,
                                             bool wide = false);

// Blocks that an SM holds at once, and clusters that the GPU runs at once.
int blocks_per_sm(const ClusterPlan&);
int resident_clusters(const ClusterPlan&, int sm_count);

// Shared memory that a block of a launch of `units` clusters asks for. Blocks that start while the launch ahead ends
// take the SMs that are free first, as many on one as fit: so where all run at once, no more fit than must.
int launch_bytes(const ClusterPlan&, int units, int sm_count);

// The plan of the least estimated cost, or nothing where no bundle fits a cluster's shared memory (which does not
// depend on `sm_count`).
std::optional<ClusterPlan> choose_cluster_plan(const Problem&, int sm_count);

// Plans whose estimate is near the least, the chosen one first, as text that parse_cluster_choice reads.
std::vector<Choice> cluster_choices(const Problem&, DType, const DeviceInfo&);
std::optional<ClusterPlan> parse_cluster_choice(const Problem&, std::string_view choice);

// How ptx_sm90a_grid cuts a problem: as kernels/groupnorm's does, with shared_rows rows of x and of dy in shared
// memory.
struct GridPlan : ClusterPlan {
  int teams = 1;

  constexpr int shared_bytes() const {
    return 2 * shared_rows * columns * 16 + (pairs() + 2 * bundle + channels()) * 8;
  }
  std::string text() const;  // "bundle=8,teams=2"
};

// The plan of the least estimated cost, and those near it as text that parse_grid_choice reads.
std::optional<GridPlan> choose_grid_plan(const Problem&, int sm_count);
std::vector<Choice> grid_choices(const Problem&, DType, const DeviceInfo&);
std::optional<GridPlan> parse_grid_choice(const Problem&, int sm_count, std::string_view choice);

}  // namespace noisefloor::groupnorm_backward
