// How many stages' weights are asked for early, and of which split an inbox is.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::product {
namespace {

TEST(product_early_stages, AreOfConstantWeightsInProgrammaticLaunches) {
  LaunchContext context;
  context.programmatic_launch = true;
  EXPECT_EQ(early_stages(context, 8), 0);
  context.constant_inputs = ~(std::uint64_t{1} << kWeightTensor);  // all but the weights
  EXPECT_EQ(early_stages(context, 8), 0);
  context.constant_inputs = std::uint64_t{1} << kWeightTensor;
  EXPECT_EQ(early_stages(context, 8), kEarlyStages);
  EXPECT_EQ(early_stages(context, 3), 3);
  context.programmatic_launch = false;
  EXPECT_EQ(early_stages(context, 8), 0) << "behind an ordinary edge there is nothing to wait for";
}

// Blocks of a cluster wait for each other's inboxes, so all go by the one with the most steps.
TEST(product_inbox, IsThatOfTheLongestSplit) {
  constexpr int kStages = 6, kRoom = 2, kMostSteps = 40, kMostSplits = 8;
  Sm90aSchedule schedule;
  schedule.stages = kStages;
  for (int splits = 1; splits <= kMostSplits; ++splits)
    for (int steps = splits; steps <= kMostSteps; ++steps) {
      schedule.splits = splits;
      int longest = 0;
      for (int s = 0; s < splits; ++s) longest = std::max(longest, steps * (s + 1) / splits - steps * s / splits);
      const Inbox inbox = inbox_of(schedule, steps, kRoom);
      const Inbox wanted = splits == 1 ? Inbox{} : find_inbox(longest, kStages, kRoom);
      EXPECT_EQ(inbox.stage, wanted.stage) << steps << " steps in " << splits;
      EXPECT_EQ(inbox.opens, wanted.opens) << steps << " steps in " << splits;
    }
}

}  // namespace
}  // namespace noisefloor::product
