// Where partial sums arrive: stages that nothing reads or fills any more, for every ring and every number of steps.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::product {
namespace {

constexpr int kMostStages = 18;  // of the deepest tile
constexpr int kMostSteps = 4 * kMostStages + 1;

TEST(product_dsmem, NoStepBehindItsOpeningUsesItsStages) {
  for (int stages = 1; stages <= kMostStages; ++stages)
    for (int room = 1; room <= stages; ++room)
      for (int most = 1; most <= kMostSteps; ++most) {
        const DsmemBuffer dsmem = find_dsmem(most, stages, room);
        ASSERT_TRUE(dsmem.stage >= 0 && dsmem.stage + room <= stages && dsmem.opens >= 0 && dsmem.opens <= most);
        for (const int steps : {most, most - 1})  // a cluster's blocks differ by one
          for (int step = dsmem.opens; step < steps; ++step) {
            const int stage = step % stages;
            ASSERT_TRUE(stage < dsmem.stage || stage >= dsmem.stage + room)
                << "stages " << stages << ", room " << room << ", most steps " << most << ", step " << step;
          }
      }
}

TEST(product_dsmem, OpensBeforeTheEndWhereTheRingHasAStageToSpare) {
  EXPECT_EQ(find_dsmem(13, 8, 1).opens, 6);  // stage 5 is read for the last time in step 5
  EXPECT_EQ(find_dsmem(13, 8, 1).stage, 5);
  EXPECT_EQ(find_dsmem(5, 8, 2).opens, 0);  // stages 5 and 6 are never filled
  EXPECT_EQ(find_dsmem(7, 8, 2).stage, 0);  // and where two are not left, the first two
  EXPECT_EQ(find_dsmem(7, 8, 2).opens, 2);
}

TEST(product_dsmem, OpensBehindNoFewerSteps) {
  const DsmemBuffer dsmem = find_dsmem(13, 8, 1);
  EXPECT_EQ(opened_behind(dsmem, 5).opens, 6) << "no sooner than it is free";
  EXPECT_EQ(opened_behind(dsmem, 9).opens, 9);
  EXPECT_EQ(opened_behind(dsmem, 9).stage, dsmem.stage);
  EXPECT_EQ(opened_behind(DsmemBuffer{}, 9).opens, -1) << "a tile that is not split has none";
}

// Blocks of a cluster wait for each other's DSMEM buffers, so all go by the one with the most steps.
TEST(product_dsmem, IsThatOfTheLongestSplit) {
  constexpr int kStages = 6, kRoom = 2, kMostSplits = 8;
  Sm90aSchedule schedule;
  schedule.stages = kStages;
  for (int splits = 1; splits <= kMostSplits; ++splits)
    for (int steps = splits; steps <= kMostSteps; ++steps) {
      schedule.splits = splits;
      int longest = 0;
      for (int s = 0; s < splits; ++s) longest = std::max(longest, steps * (s + 1) / splits - steps * s / splits);
      const DsmemBuffer dsmem = dsmem_of(schedule, steps, kRoom);
      const DsmemBuffer wanted = splits == 1 ? DsmemBuffer{} : find_dsmem(longest, kStages, kRoom);
      EXPECT_EQ(dsmem.stage, wanted.stage) << steps << " steps in " << splits;
      EXPECT_EQ(dsmem.opens, wanted.opens) << steps << " steps in " << splits;
    }
}

}  // namespace
}  // namespace noisefloor::product
