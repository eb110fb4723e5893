// Where partial sums arrive: stages that nothing reads or fills any more, for every ring and every number of steps.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::product {
namespace {

constexpr int kMostStages = 18;  // of the deepest tile
constexpr int kMostSteps = 4 * kMostStages + 1;

TEST(product_inbox, NoStepBehindItsOpeningUsesItsStages) {
  for (int stages = 1; stages <= kMostStages; ++stages)
    for (int room = 1; room <= stages; ++room)
      for (int most = 1; most <= kMostSteps; ++most) {
        const Inbox inbox = find_inbox(most, stages, room);
        ASSERT_TRUE(inbox.stage >= 0 && inbox.stage + room <= stages && inbox.opens >= 0 && inbox.opens <= most);
        for (const int steps : {most, most - 1})  // a cluster's blocks differ by one
          for (int step = inbox.opens; step < steps; ++step) {
            const int stage = step % stages;
            ASSERT_TRUE(stage < inbox.stage || stage >= inbox.stage + room)
                << "stages " << stages << ", room " << room << ", most steps " << most << ", step " << step;
          }
      }
}

TEST(product_inbox, OpensBeforeTheEndWhereTheRingHasAStageToSpare) {
  EXPECT_EQ(find_inbox(13, 8, 1).opens, 6);  // stage 5 is read for the last time in step 5
  EXPECT_EQ(find_inbox(13, 8, 1).stage, 5);
  EXPECT_EQ(find_inbox(5, 8, 2).opens, 0);  // stages 5 and 6 are never filled
  EXPECT_EQ(find_inbox(7, 8, 2).stage, 0);  // and where two are not left, the first two
  EXPECT_EQ(find_inbox(7, 8, 2).opens, 2);
}

TEST(product_inbox, OpensBehindNoFewerSteps) {
  const Inbox inbox = find_inbox(13, 8, 1);
  EXPECT_EQ(opened_behind(inbox, 5).opens, 6) << "no sooner than it is free";
  EXPECT_EQ(opened_behind(inbox, 9).opens, 9);
  EXPECT_EQ(opened_behind(inbox, 9).stage, inbox.stage);
  EXPECT_EQ(opened_behind(Inbox{}, 9).opens, -1) << "a tile that is not split has none";
}

// Blocks of a cluster wait for each other's inboxes, so all go by the one with the most steps.
TEST(product_inbox, IsThatOfTheLongestSplit) {
  constexpr int kStages = 6, kRoom = 2, kMostSplits = 8;
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
