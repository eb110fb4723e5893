// The plans of groupnorm_backward's ptx_sm90a: that they fit the machine and cover the problem.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>

#include "kernels/groupnorm/grid_plan.h"
#include "kernels/groupnorm_backward/cluster_plan.h"

namespace noisefloor::groupnorm_backward {
namespace {

// What is wrong with a plan; nothing where it fits the SM, covers the rows, and has lanes that divide warps.
std::string fault_of(const Problem& p, const ClusterPlan& plan) {
  const int threads = plan.columns * plan.tile_rows, lanes = plan.lanes();
  if (p.groups % plan.bundle != 0 || plan.bundle * p.channels_per_group() != plan.channels()) return "not its channels";
  if (static_cast<std::int64_t>(plan.rows) * plan.blocks < p.hw || plan.shared_rows != plan.rows)
    return "rows are lost";
  if (threads > (plan.wide ? kWideThreads : kMaxClusterThreads) || plan.threads < 32 || plan.threads > threads)
    return "threads";
  if (2 * plan.kept_rows() < plan.tile_rows || plan.owned() * plan.blocks < plan.channels()) return "sums are lost";
  if (32 % lanes != 0 || lanes > plan.kept_rows()) return "lanes";
  if (blocks_per_sm(plan) < 1 || resident_clusters(plan, 132) < 1) return "nothing runs";
  const int units = static_cast<int>(p.n * (p.groups / plan.bundle)), bytes = launch_bytes(plan, units, 132);
  const int at_once = std::min(units, resident_clusters(plan, 132)) * plan.blocks;
  if (bytes > groupnorm::kSharedBytesPerBlock || 228 * 1024 / (bytes + 1024) * 132 < at_once) return "a second wave";
  return plan.shared_bytes() <= groupnorm::kSharedBytesPerBlock ? "" : "more shared memory than there is";
}

// Of a plan of the grid's: that teams share the SMs, and blocks hold rows, none twice, that have room.
std::string fault_of(const Problem& p, const GridPlan& plan, int sm_count) {
  if (p.groups % plan.bundle != 0 || plan.bundle * p.channels_per_group() != plan.channels()) return "not its channels";
  if (static_cast<std::int64_t>(plan.rows) * plan.blocks < p.hw) return "rows are lost";
  if (plan.teams * plan.blocks > sm_count || plan.teams > p.n * (p.groups / plan.bundle)) return "teams";
  const int threads = plan.columns * plan.tile_rows;
  if (threads > 512 || plan.threads < 32 || plan.threads > threads) return "threads";
  if (plan.shared_rows < 1 || plan.shared_rows > plan.rows) return "rows held";
  return plan.shared_bytes() <= groupnorm::kSharedBytesPerBlock ? "" : "more shared memory than there is";
}

TEST(groupnorm_backward_plans, FitTheMachineAndCoverTheProblem) {
  EXPECT_TRUE(rc::check([] {
    Problem p;
    p.n = *rc::gen::inRange<int>(1, 600);
    p.hw = *rc::gen::inRange<int>(1, 20000);
    p.groups = *rc::gen::inRange<int>(1, 40);
    p.channels = p.groups * *rc::gen::inRange<int>(1, 60);
    if (p.group_size() < 2) return;
    const DeviceInfo device{.sm_count = 132};
    const auto choices = cluster_choices(p, DType::bf16, device);
    RC_ASSERT(choices.empty() == !choose_cluster_plan(p, 1).has_value());  // whatever the number of SMs
    for (const Choice& choice : choices) {
      const auto plan = parse_cluster_choice(p, choice.text);
      RC_ASSERT(plan.has_value());
      RC_ASSERT(fault_of(p, *plan) == "");
    }
    for (const Choice& choice : grid_choices(p, DType::bf16, device)) {
      const auto plan = parse_grid_choice(p, 132, choice.text);
      RC_ASSERT(plan.has_value());
      RC_ASSERT(fault_of(p, *plan, 132) == "");
    }
  }));
}

TEST(groupnorm_backward_plans, TrainingNetworksFit) {
  for (const Problem& p : {Problem{.n = 32, .hw = 4096, .channels = 576, .groups = 32},
                           Problem{.n = 32, .hw = 64, .channels = 1536, .groups = 32},
                           Problem{.n = 512, .hw = 16, .channels = 64, .groups = 16}})
    EXPECT_TRUE(choose_cluster_plan(p, 132)) << p.hw << " x " << p.channels;
  EXPECT_FALSE(choose_cluster_plan({.n = 1, .hw = 262144, .channels = 128, .groups = 32}, 132))
      << "16 blocks hold less";
  EXPECT_TRUE(choose_grid_plan({.n = 1, .hw = 262144, .channels = 128, .groups = 32}, groupnorm::kFewestGridSms));
}

}  // namespace
}  // namespace noisefloor::groupnorm_backward
