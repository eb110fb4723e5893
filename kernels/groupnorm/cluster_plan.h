// How ptx_sm90a cuts a problem: each image into bundles of groups, each bundle into the blocks of one cluster, by rows.
// Pure arithmetic, tested on the host.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

inline constexpr int kClusterLanes = 8;           // bf16 or fp16 elements of a 16-byte access
inline constexpr int kHeldChoices[] = {0, 2, 4};  // rows that a thread can hold in registers
inline constexpr int kHeldByPairs = 6;            // and so many where that was timed, or lets two blocks share an SM
inline constexpr int kMaxClusterBlocks = 16;      // more than 8 needs cudaFuncAttributeNonPortableClusterSizeAllowed
inline constexpr int kSharedBytesPerBlock = 227 * 1024;                      // sm_90's opt-in limit
inline constexpr int kSharedBytesPerSm = 228 * 1024, kReservedBytes = 1024;  // the driver's, of each block

// Of longer images two clusters of 16 blocks on the same SMs hold no whole lines of 128 bytes: theirs are narrower, or
// one block an SM: a launch of all SMs is faster (docs/experiments/groupnorm).
inline constexpr std::int64_t kMostClusterPixels = kMaxClusterBlocks * (228 * 1024 / 2) / 128;
static_assert(kMostClusterPixels == 14592);

// Image-bundle pairs of a problem at most; the kernel divides their numbers in float.
inline constexpr std::int64_t kMaxClusterUnits = std::int64_t{1} << 21;

// Registers of a thread that holds `held` rows (or pixels, four of a row), and threads of a block so that two blocks
// always have them. Each of an SM's four schedulers has a quarter of its registers, for whole warps.
constexpr int cluster_registers(int held) {
  return 56 + 4 * held;
}
constexpr int max_cluster_threads(int held) {
  const int warps_of_scheduler = 65536 / 4 / (32 * cluster_registers(held));
  return 4 * warps_of_scheduler / 2 * 32;
}

// What kernels read of a plan. Whoever adds a number changes the code of all of them: ptxas loads these by pairs.
struct StripePlan {
  int bundle = 1;     // groups of a block; bundle * channels_per_group is a multiple of kClusterLanes
  int blocks = 1;     // of a cluster; a power of two
  int rows = 1;       // of a block; the last blocks of a cluster may have fewer
  int columns = 1;    // 16-byte columns of a bundle
  int tile_rows = 1;  // rows that a block copies at once: thread t takes column t % columns of row t / columns
  int threads = 32;   // of the whole warps among columns * tile_rows; a last, partial warp copies, sums and writes only
  int held = 0;       // pixels that a thread, its first, holds in registers: one of kHeldChoices, or kHeldByPairs
  int shared_rows = 1;  // rows of a block, its last, that are in shared memory
  int entries = 2;  // moments that a thread leaves: of two groups, or of eight channels where those span more groups

  // Mean and M2, 8 bytes, for each entry of each thread; the pitch is odd, against bank conflicts.
  constexpr int sums() const { return columns * entries * (tile_rows | 1); }
};

struct ClusterPlan : StripePlan {
  int pixels = 1;  // of x in a row: one, or with down_w the four of a pixel of y, of which a thread holds all or none

  std::string text() const;  // "bundle=2,blocks=8,threads=256,held=4"
  int held_rows() const { return held / pixels; }
  int shared_bytes() const {
    const int moments = (blocks + 1) * bundle;  // mean and M2 of each group, by block; then mean and rstd
    const int barrier = 8;
    return shared_rows * pixels * columns * 16 + (sums() + moments) * 2 * static_cast<int>(sizeof(float)) + barrier;
  }
};

// Whether eight channels from a multiple of 8 on lie in two groups at most.
bool spans_two_groups(std::int64_t channels_per_group);

// An image's rows of a bundle, cut into blocks of about so many threads, each of which holds `held` rows; or nothing
// where the bundle does not fit the problem or the rows that are not held no SM's shared memory.
std::optional<ClusterPlan> cut_rows(const Problem&, int bundle, int blocks, int threads, int held);

// The plan with these choices, or nothing where they do not fit the problem or the SM.
std::optional<ClusterPlan> make_cluster_plan(const Problem&, int bundle, int blocks, int threads, int held);

// Blocks that an SM holds at once, of so much shared memory and so many registers a thread, and clusters that the GPU
// runs at once.
int blocks_per_sm(const StripePlan&, int shared_bytes, int registers);
int blocks_per_sm(const ClusterPlan&);
int resident_clusters(int blocks_of_cluster, int of_sm, int sm_count);
int resident_clusters(const ClusterPlan&, int sm_count);

// What follows is for plans here and in kernels/groupnorm_backward. Calls body(bundle, blocks) for bundles of groups
// and clusters that have rows to share out.
template <class Body>
void each_cut(std::int64_t groups, std::int64_t rows, const Body& body) {
  for (int bundle = 1; bundle <= groups; ++bundle)
    for (int blocks = 1; groups % bundle == 0 && blocks <= kMaxClusterBlocks; blocks *= 2)
      if (blocks == 1 || rows >= 8 * blocks) body(bundle, blocks);
}

// The first of the least cost.
template <class Plan, class Cost>
std::optional<Plan> cheapest(const std::vector<Plan>& plans, const Cost& cost) {
  const auto best = std::ranges::min_element(plans, {}, cost);
  return best == plans.end() ? std::nullopt : std::optional(*best);
}

// The plan of this text: make(its numbers), of which the first two are bundle and blocks.
template <class Make>
auto plan_of_text(std::string_view text, const Make& make) {
  std::array<int, 5> numbers{};
  std::size_t count = 0;
  for (auto at = text.find('='); at != text.npos && count < numbers.size(); at = text.find('=', at + 1))
    std::from_chars(text.data() + at + 1, text.data() + text.size(), numbers[count++]);
  const bool fit = numbers[0] > 0 && numbers[1] > 0 && numbers[1] <= kMaxClusterBlocks &&
                   std::has_single_bit(static_cast<unsigned>(numbers[1]));
  const auto plan = fit ? make(numbers) : std::nullopt;
  return plan && plan->text() == text ? plan : std::nullopt;
}

// How a launch of `units` clusters lies on the SMs. Blocks that start while the launch ahead ends take the SMs that are
// free first, several on one: so where a block can have an SM to itself it asks for memory that leaves no room for
// another, and where several must share one, but all run at once, the launch waits until all SMs are free. On a GPU of
// as many SMs as an H200 has: how many can hold a cluster is known of it alone, and one too many would be a second
// wave.
struct ClusterResidence {
  int shared_bytes = 0;      // of a block; at least the plan's
  bool programmatic = true;  // may start while the launch ahead ends
};
ClusterResidence cluster_residence(const ClusterPlan&, std::int64_t units, int sm_count);

// The plan of the least estimated cost, or nothing where no bundle fits a cluster's shared memory (which does not
// depend on `sm_count`).
std::optional<ClusterPlan> estimated_cluster_plan(const Problem&, int sm_count);

// The plan that the launcher takes: the measured one (measured_plans) where a GPU of as many SMs was timed with the
// problem's shape, else the estimated one. With down_w, of a shape that was not timed so: the one of the norm alone,
// which loads the same, where it can be had.
std::optional<ClusterPlan> choose_cluster_plan(const Problem&, int sm_count);

// Every plan of a problem, the estimate's first, as text that parse_cluster_choice reads. None where no plan fits.
std::vector<Choice> cluster_choices(const Problem&, DType, const DeviceInfo&);
std::optional<ClusterPlan> parse_cluster_choice(const Problem&, std::string_view choice);

// Plans that won when many were timed, which choose_cluster_plan takes before any estimate: written by
// `tools/tune groupnorm` to measured_plans.cpp.
struct MeasuredPlan {
  std::int64_t n, hw, channels, groups, down_w;  // the problems, of any fusion and dtype
  int bundle, blocks, threads, held;             // what make_cluster_plan takes
};

struct MeasuredPlans {
  int sm_count;                         // of the GPU they were timed on; plans depend on it
  std::span<const MeasuredPlan> plans;  // by n, hw, channels, groups, down_w, ascending; each shape once
};

MeasuredPlans measured_plans();

}  // namespace noisefloor::groupnorm
