// What groupnorm's coefficients of given statistics are shared out into: every statistic once, by what a block has.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>
#include <vector>

#include "kernels/groupnorm/finish_plan.h"

namespace noisefloor::groupnorm {
namespace {

Problem problem_of(std::int64_t n, std::int64_t hw, std::int64_t channels, std::int64_t groups) {
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
    const Problem p = problem_of(*rc::gen::inRange<std::int64_t>(1, 100), *rc::gen::inRange<std::int64_t>(1, 300000),
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
  EXPECT_EQ(plan_finish(problem_of(1, 4096, 192, 32), 132)->bundle, 2);    // 12 channels, 48 bytes
  EXPECT_EQ(plan_finish(problem_of(32, 4096, 192, 32), 132)->bundle, 4);   // 96 bytes
  EXPECT_EQ(plan_finish(problem_of(1, 262144, 128, 32), 132)->bundle, 1);  // 16 bytes, 4096 slabs
  EXPECT_EQ(plan_finish(problem_of(1, 262144, 128, 32), 132)->warps, kFinishMaxWarps);
  EXPECT_EQ(plan_finish(problem_of(2, 64, 2560, 32), 132)->warps, 1);  // one slab of 80 channels
}

}  // namespace
}  // namespace noisefloor::groupnorm
