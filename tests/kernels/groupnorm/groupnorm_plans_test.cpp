// The plans of groupnorm's ptx_sm90a and ptx_sm90a_grid: that they fit the machine and cover the problem, which is
// taken, and the table of the measured ones.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/core/op.h"
#include "kernels/groupnorm/cluster_plan.h"
#include "kernels/groupnorm/finish_plan.h"
#include "kernels/groupnorm/grid_plan.h"

namespace noisefloor::groupnorm {
namespace {

std::string text_of(const Problem& p) {
  static const Op op = make_op(definition);
  return op.print(AnyProblem(p));
}

Problem network_problem(std::int64_t n, std::int64_t hw, std::int64_t channels) {
  Problem p;
  p.n = n;
  p.hw = hw;
  p.channels = channels;
  p.groups = 32;
  p.fusion = Fusion::silu;
  return p;
}

// What is wrong with a plan of the problem; nothing where it fits the SM and covers the rows.
std::string fault_of(const Problem& p, const ClusterPlan& plan) {
  const auto& [bundle, blocks, held] = std::tie(plan.bundle, plan.blocks, plan.held);
  if (p.groups % bundle != 0) return "the bundle divides no image";
  if (bundle * p.channels_per_group() != plan.columns * kClusterLanes) return "columns are not the bundle's";
  if (static_cast<std::int64_t>(plan.rows) * blocks * plan.pixels < p.hw) return "rows are left out";
  if (plan.pixels != (p.down() ? 4 : 1) || held % plan.pixels != 0) return "threads hold parts of quads";
  if (blocks < 1 || blocks > kMaxClusterBlocks || (blocks & (blocks - 1)) != 0) return "no such cluster";
  if (std::ranges::find(kHeldChoices, held) == std::end(kHeldChoices) && held != kHeldByPairs) return "no such kernel";
  if (plan.columns * plan.tile_rows > max_cluster_threads(held)) return "more threads than registers";
  // Rows in registers and rows in shared memory are all rows, and no thread's registers stay empty in a full block.
  if (plan.shared_rows + std::min(plan.held_rows() * plan.tile_rows, plan.rows) != plan.rows) return "rows are nowhere";
  if (held != 0 && (plan.held_rows() - 1) * plan.tile_rows >= plan.rows) return "registers stay empty";
  if (resident_clusters(plan, 132) < 1) return "nothing runs";
  if (plan.threads < 32 || plan.threads > plan.columns * plan.tile_rows || plan.threads % 32 != 0)
    return "no whole warps";
  // Two entries per column hold all that eight channels from a multiple of 8 on can belong to, else one a channel.
  const std::int64_t per_group = p.channels_per_group();
  for (std::int64_t c = 0; c < plan.columns * kClusterLanes; c += kClusterLanes)
    if (plan.entries != kClusterLanes && (c + kClusterLanes - 1) / per_group - c / per_group > 1) return "few entries";
  return plan.shared_bytes() <= kSharedBytesPerBlock ? "" : "more shared memory than there is";
}

// Blocks that start while the launch ahead ends must not crowd on the SMs that are free first.
TEST(groupnorm_plans, BlocksHaveAnSmEachOrWait) {
  EXPECT_TRUE(rc::check([] {
    Problem p = network_problem(*rc::gen::inRange<int>(1, 40), *rc::gen::inRange<int>(1, 5000),
                                32 * *rc::gen::inRange<int>(1, 80));
    const auto plan = estimated_cluster_plan(p, 132);
    RC_PRE(plan.has_value());
    const std::int64_t units = p.n * (p.groups / plan->bundle);
    const ClusterResidence residence = cluster_residence(*plan, units, 132);
    RC_ASSERT(residence.shared_bytes >= plan->shared_bytes());
    RC_ASSERT(residence.shared_bytes <= kSharedBytesPerBlock);
    const bool alone = 2 * (residence.shared_bytes + 1024) > 228 * 1024;
    if (units * plan->blocks <= 132 * 84 / 100) RC_ASSERT(alone && residence.programmatic);
    if (units * plan->blocks > 132 && units <= resident_clusters(*plan, 132)) RC_ASSERT(!residence.programmatic);
    if (units > resident_clusters(*plan, 132))
      RC_ASSERT(residence.programmatic && residence.shared_bytes == plan->shared_bytes());
  }));
  // Clusters of 16 find 112 SMs: seven have an SM a block, eight share.
  const auto wide = make_cluster_plan(network_problem(1, 4096, 192), 8, 16, 252, 4);
  EXPECT_EQ(cluster_residence(*wide, 7, 132).shared_bytes, 114 * 1024);
  EXPECT_EQ(cluster_residence(*wide, 8, 132).shared_bytes, wide->shared_bytes());
  EXPECT_FALSE(cluster_residence(*wide, 8, 132).programmatic);
  EXPECT_EQ(cluster_residence(*wide, 4, 114).shared_bytes, wide->shared_bytes());  // of whose clusters nothing is known
  EXPECT_TRUE(cluster_residence(*wide, 4, 114).programmatic);
}

TEST(groupnorm_plans, ClusterPlansFitTheMachineAndCoverTheProblem) {
  EXPECT_TRUE(rc::check([] {
    Problem p;
    p.n = *rc::gen::inRange<int>(1, 100);
    p.hw = *rc::gen::oneOf(rc::gen::inRange<int>(1, 100), rc::gen::inRange<int>(1, 20000));
    p.groups = *rc::gen::inRange<int>(1, 65);
    p.channels = p.groups * *rc::gen::inRange<int>(1, 100);
    if (*rc::gen::arbitrary<bool>()) {
      p.down_w = 2 * *rc::gen::inRange<int>(1, 80);
      p.hw = 2 * p.down_w * *rc::gen::inRange<int>(1, 80);
    }
    const auto plan = estimated_cluster_plan(p, *rc::gen::inRange<int>(1, 200));
    RC_PRE(plan.has_value());
    RC_ASSERT(fault_of(p, *plan) == "");
    RC_ASSERT(plan->held != kHeldByPairs || blocks_per_sm(*plan) >= 2);
  }));
}

std::tuple<int, int, int, int> numbers_of(const ClusterPlan& plan) {
  return {plan.bundle, plan.blocks, plan.tile_rows, plan.held};
}

Problem problem_of(const MeasuredPlan& row) {
  Problem p;
  p.n = row.n;
  p.hw = row.hw;
  p.channels = row.channels;
  p.groups = row.groups;
  p.down_w = row.down_w;
  return p;
}

// A table whose shapes do not ascend, or that has one twice, gives some row to nobody.
TEST(groupnorm_plans, EveryMeasuredPlanIsAPlanOfItsProblemAndTakenOnGpusOfAsManySms) {
  const int sms = measured_plans().sm_count;
  EXPECT_FALSE(measured_plans().plans.empty());
  for (const MeasuredPlan& row : measured_plans().plans) {
    Problem p = problem_of(row);
    SCOPED_TRACE(text_of(p));
    ASSERT_NO_THROW(definition.check(p));
    const auto plan = make_cluster_plan(p, row.bundle, row.blocks, row.threads, row.held);
    ASSERT_TRUE(plan);
    EXPECT_EQ(fault_of(p, *plan), "");
    // As it was timed, and not a smaller one that the numbers were cut down to.
    EXPECT_EQ(plan->columns * plan->tile_rows, row.threads);
    const auto estimated = estimated_cluster_plan(p, sms);
    ASSERT_TRUE(estimated);  // can_run asks the estimate, which has no GPU
    EXPECT_NE(numbers_of(*plan), numbers_of(*estimated)) << "the row says nothing new";
    for (const Fusion fusion : {Fusion::none, Fusion::silu, Fusion::silu_scale_shift}) {
      p.fusion = fusion;
      EXPECT_EQ(numbers_of(*choose_cluster_plan(p, sms)), numbers_of(*plan));
    }
    for (const int others : {sms - 1, sms + 1, 78})
      EXPECT_EQ(numbers_of(*choose_cluster_plan(p, others)), numbers_of(*estimated_cluster_plan(p, others))) << others;
  }
}

// An image that is halved takes what the norm alone takes where a thread holds whole quads, or none, of it; the
// estimate decides elsewhere.
TEST(groupnorm_plans, HalvedImagesTakeThePlanOfTheNormAloneWhereTheyCan) {
  const int sms = measured_plans().sm_count;
  int taken = 0, estimated = 0;
  for (const MeasuredPlan& row : measured_plans().plans) {
    Problem p = problem_of(row);
    const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(p.hw)));
    if (p.down() || side * side != p.hw || side % 2 != 0) continue;
    p.down_w = side;
    const auto plan = choose_cluster_plan(p, sms);
    ASSERT_TRUE(plan) << text_of(p);
    EXPECT_EQ(fault_of(p, *plan), "") << text_of(p);
    const auto own = make_cluster_plan(p, row.bundle, row.blocks, row.threads, row.held);
    EXPECT_EQ(numbers_of(*plan), numbers_of(own ? *own : *estimated_cluster_plan(p, sms))) << text_of(p);
    ++(own ? taken : estimated);
    for (const Choice& choice : cluster_choices(p, DType::bf16, {.compute_capability = 90, .sm_count = sms}))
      ASSERT_EQ(fault_of(p, *parse_cluster_choice(p, choice.text)), "") << text_of(p) << " " << choice.text;
  }
  EXPECT_GT(taken, 10);
  EXPECT_GT(estimated, 10);
}

TEST(groupnorm_plans, ChoicesArePlansOfTheirProblemAndTheMeasuredOneIsAmongThem) {
  const int sms = measured_plans().sm_count;
  for (const auto& [n, hw, channels] : {std::tuple{1, 64, 256}, {32, 4096, 192}, {28, 9216, 960}}) {
    const Problem p = network_problem(n, hw, channels);
    std::set<std::tuple<int, int, int, int>> seen;
    for (const Choice& choice : cluster_choices(p, DType::bf16, {.compute_capability = 90, .sm_count = sms})) {
      const auto plan = parse_cluster_choice(p, choice.text);
      ASSERT_TRUE(plan) << text_of(p) << " " << choice.text;
      EXPECT_EQ(fault_of(p, *plan), "") << choice.text;
      EXPECT_TRUE(seen.insert(numbers_of(*plan)).second) << choice.text << " is there twice";
    }
    EXPECT_GT(seen.size(), 20u) << text_of(p);
    EXPECT_TRUE(seen.contains(numbers_of(*choose_cluster_plan(p, sms)))) << text_of(p);
  }
  EXPECT_TRUE(cluster_choices(network_problem(2, 129024, 320), DType::bf16, {.sm_count = sms}).empty());
}

TEST(groupnorm_plans, TextThatIsNotAChoiceOfTheProblemIsRefused) {
  const Problem p = network_problem(32, 4096, 192);
  EXPECT_TRUE(parse_cluster_choice(p, "bundle=4,blocks=8,threads=192,held=4"));
  for (const char* text :
       {"", "bundle=4", "bundle=4,blocks=8,threads=192", "bundle=4,blocks=8,threads=192,held=", "threads=192,bundle=4",
        "bundle=4,blocks=8,threads=192,held=4,", "bundle=4,blocks=8,threads=192,held=4 ",
        "bundle=0,blocks=8,threads=192,held=4", "bundle=-4,blocks=8,threads=192,held=4",
        "bundle=3,blocks=8,threads=192,held=4", "bundle=4,blocks=0,threads=192,held=4",
        "bundle=4,blocks=3,threads=192,held=4", "bundle=4,blocks=32,threads=192,held=4",
        "bundle=4,blocks=8,threads=193,held=4", "bundle=4,blocks=8,threads=0,held=4",
        "bundle=4,blocks=8,threads=9999,held=4", "bundle=4,blocks=8,threads=192,held=3",
        "bundle=4,blocks=8,threads=192,held=8", "bundle=99999999999,blocks=8,threads=192,held=4"})
    EXPECT_FALSE(parse_cluster_choice(p, text)) << text;
}

TEST(groupnorm_plans, TwoBlocksOfAnyPlanFindTheirRegistersInFourQuarters) {
  for (const int held : {0, 2, 4, kHeldByPairs, 8}) {
    const int warps_of_scheduler = (2 * max_cluster_threads(held) / 32 + 3) / 4;
    EXPECT_LE(warps_of_scheduler * 32 * cluster_registers(held), 65536 / 4) << held;
    EXPECT_GE(max_cluster_threads(held), 256) << held;
  }
}

TEST(groupnorm_plans, MoreRowsAreHeldWhereThatLetsTwoBlocksShareAnSm) {
  const auto svd = estimated_cluster_plan(network_problem(28, 9216, 960), 132);
  ASSERT_TRUE(svd);
  EXPECT_EQ(svd->held, kHeldByPairs);
  EXPECT_EQ(blocks_per_sm(*svd), 2);
  EXPECT_EQ(resident_clusters(*svd, 132), 14);
  // One image's 8 clusters do not fit 132 SMs one block each, but 264 SMs: nothing waits, so nothing is to overlap.
  EXPECT_EQ(estimated_cluster_plan(network_problem(1, 9216, 960), 132)->held, kHeldByPairs);
  EXPECT_LE(estimated_cluster_plan(network_problem(1, 9216, 960), 264)->held, 4);
  // Two blocks or more share an SM as it is.
  for (const auto& [n, hw, channels] : {std::tuple{28, 9216, 640}, {28, 9216, 320}, {64, 4096, 320}, {32, 4096, 576}}) {
    const auto plan = estimated_cluster_plan(network_problem(n, hw, channels), 132);
    EXPECT_LE(plan->held, 4) << hw << " " << channels;
    EXPECT_GE(blocks_per_sm(*plan), 2) << hw << " " << channels;
  }
  // Too long for two blocks, however many rows are held: as before.
  const auto longer = estimated_cluster_plan(network_problem(2, 16384, 960), 132);
  EXPECT_LE(longer->held, 4);
  EXPECT_EQ(blocks_per_sm(*longer), 1);
}

// What is wrong with a plan of the problem for so many SMs; nothing where it fits them and covers the rows.
std::string fault_of(const Problem& p, const GridPlan& plan, int sm_count) {
  const ClusterPlan& stripe = plan.stripe;
  if (p.groups % stripe.bundle != 0) return "the bundle divides no image";
  if (stripe.bundle * p.channels_per_group() != stripe.columns * kClusterLanes) return "columns are not the bundle's";
  if (static_cast<std::int64_t>(stripe.rows) * stripe.blocks < p.hw) return "rows are left out";
  if (plan.teams < 1 || stripe.blocks < 1 || plan.blocks() > sm_count) return "blocks that would wait for an SM";
  if (plan.teams > p.n * (p.groups / stripe.bundle)) return "a team without work";
  const int threads = stripe.columns * stripe.tile_rows;
  if (threads > kGridThreads) return "more threads than registers";
  if (stripe.held != kGridHeld && stripe.held != 0) return "no such kernel";
  if (stripe.held > 0 && stripe.shared_rows + std::min(kGridHeld * stripe.tile_rows, stripe.rows) != stripe.rows)
    return "rows are nowhere";
  if (stripe.held == 0 && (plan.streamed_rows() < 1 || stripe.shared_rows < stripe.tile_rows))
    return "threads that hold no row, or nothing to stream";
  if (stripe.threads < 32 || stripe.threads > threads || stripe.threads % 32 != 0) return "no whole warps";
  if (plan.shared_bytes() > kSharedBytesPerBlock) return "more shared memory than there is";
  const std::size_t words = static_cast<std::size_t>(p.n * p.groups);
  if (grid_part_words(p, stripe.blocks) < words * static_cast<std::size_t>(stripe.blocks))
    return "moments overlap the results";
  return grid_workspace_bytes(p, sm_count) >= 8 * (grid_part_words(p, stripe.blocks) + words)
             ? ""
             : "results overrun the workspace";
}

TEST(groupnorm_plans, GridPlansFitTheMachineAndCoverTheProblem) {
  EXPECT_TRUE(rc::check([] {
    Problem p;
    p.n = *rc::gen::inRange<int>(1, 100);
    p.hw = *rc::gen::oneOf(rc::gen::inRange<int>(1, 100), rc::gen::inRange<int>(1, 200000));
    p.groups = *rc::gen::inRange<int>(1, 65);
    p.channels = p.groups * *rc::gen::inRange<int>(1, 100);
    const int sms = *rc::gen::inRange<int>(1, 200);
    const auto choices = grid_choices(p, DType::bf16, {.sm_count = sms});
    RC_ASSERT(choices.empty() == !choose_grid_plan(p, sms).has_value());
    for (const Choice& choice : choices) {
      const auto plan = parse_grid_choice(p, sms, choice.text);
      RC_ASSERT(plan.has_value());
      RC_ASSERT(fault_of(p, *plan, sms) == "");
    }
  }));
}

TEST(groupnorm_plans, GridPlansTakeWhatNoClusterHolds) {
  const auto once = choose_grid_plan(network_problem(14, 147456, 256), 132);
  ASSERT_TRUE(once);
  EXPECT_EQ(once->stripe.held, kGridHeld);
  // Rows of which 132 SMs hold 64 bytes or less are read twice, but whole lines of them.
  for (const auto& [n, hw, channels] : {std::tuple{14, 589824, 128}, {1, 1048576, 256}, {1, 2064384, 256}}) {
    const auto twice = choose_grid_plan(network_problem(n, hw, channels), 132);
    ASSERT_TRUE(twice);
    EXPECT_GT(twice->streamed_rows(), 0);
    EXPECT_EQ(twice->stripe.columns * 16 % 128, 0);
  }
  // The choice that the room's README has: 9 teams of 14 blocks, 126 of 132 SMs.
  const auto svd = choose_grid_plan(network_problem(28, 9216, 960), 132);
  ASSERT_TRUE(svd);
  EXPECT_EQ(svd->teams, 9);
  EXPECT_EQ(svd->stripe.blocks, 14);
  EXPECT_EQ(svd->stripe.bundle, 8);
  EXPECT_FALSE(choose_cluster_plan(network_problem(2, 129024, 320), 132));  // 80 bytes * 129024 rows, of 16 * 227 KiB
  EXPECT_TRUE(choose_grid_plan(network_problem(1, 4000000, 320), kFewestGridSms));
  Problem ragged = network_problem(1, 64, 20);  // no bundle of its 4 groups of 5 is a multiple of 8 channels wide
  ragged.groups = 4;
  EXPECT_FALSE(choose_cluster_plan(ragged, 132) || choose_grid_plan(ragged, 132));
}

// ---- what coefficients of given statistics are shared out into: every statistic once, by what a block has

Problem given_problem(std::int64_t n, std::int64_t hw, std::int64_t channels, std::int64_t groups) {
  Problem p;
  p.n = n;
  p.hw = hw;
  p.channels = channels;
  p.groups = groups;
  p.slab_stats = SlabStats::given;
  p.coefficients = true;
  return p;
}

TEST(groupnorm_finish, ABlockHasWholeGroupsInWholeColumns) {
  EXPECT_TRUE(rc::check([] {
    const auto groups = *rc::gen::inRange<std::int64_t>(1, 100);
    const auto width = *rc::gen::inRange<std::int64_t>(1, 160);
    const Problem p = given_problem(*rc::gen::inRange<std::int64_t>(1, 100), *rc::gen::inRange<std::int64_t>(1, 300000),
                                    groups * width, groups);
    const int sms = *rc::gen::inRange(1, 200);
    const auto plan = plan_finish(p, sms);
    RC_ASSERT(plan.has_value() == plan_finish(p, 1).has_value());  // what can_run asks
    if (!plan) {
      const std::int64_t bundle = 4 / std::gcd(width, std::int64_t{4});
      RC_ASSERT(p.channels % 4 != 0 || width < 2 || bundle * width > 128);
      return;
    }
    RC_ASSERT(groups % plan->bundle == 0 && plan->bundle <= kFinishMaxBundle);
    RC_ASSERT(plan->bundle * width == plan->columns * kFinishLanes);
    RC_ASSERT(plan->columns <= plan->pitch && plan->pitch < 2 * plan->columns && 32 % plan->pitch == 0);
    RC_ASSERT(plan->warps >= 1 && plan->warps <= kFinishMaxWarps);
    RC_ASSERT(plan->warps == 1 || (plan->warps - 1) * (32 / plan->pitch) * kFinishFlight < p.given_slabs());

    // A column's four channels lie in two groups at most, and each group's columns are the kernel's.
    for (int column = 0; column < plan->columns; ++column)
      RC_ASSERT((column * 4 + 3) / width - column * 4 / width <= 1);
    std::vector<int> met(static_cast<std::size_t>(2 * plan->columns), 0);
    for (int j = 0; j < plan->bundle; ++j)
      for (std::int64_t begin = j * width, i = begin / 4; i * 4 < begin + width; ++i)
        ++met.at(static_cast<std::size_t>(2 * i + (i * 4 < begin ? 1 : 0)));
    for (int column = 0; column < plan->columns; ++column) {
      RC_ASSERT(met[static_cast<std::size_t>(2 * column)] == 1);
      RC_ASSERT(met[static_cast<std::size_t>(2 * column + 1)] == (column * 4 + 3) / width - column * 4 / width);
    }
  }));
}

TEST(groupnorm_finish, SmallBatchesAreSpreadAndLargeOnesReadWholeLines) {
  EXPECT_EQ(plan_finish(given_problem(1, 4096, 192, 32), 132)->bundle, 2);    // 12 channels, 48 bytes
  EXPECT_EQ(plan_finish(given_problem(32, 4096, 192, 32), 132)->bundle, 4);   // 96 bytes
  EXPECT_EQ(plan_finish(given_problem(1, 262144, 128, 32), 132)->bundle, 1);  // 16 bytes, 4096 slabs
  EXPECT_EQ(plan_finish(given_problem(1, 262144, 128, 32), 132)->warps, kFinishMaxWarps);
  EXPECT_EQ(plan_finish(given_problem(2, 64, 2560, 32), 132)->warps, 1);  // one slab of 80 channels
}

}  // namespace
}  // namespace noisefloor::groupnorm
