// The GEMM core's pure functions: which blocks of a cluster share operands, the order of tiles, and stages of the ring.
#include "kernels/product/sharing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/product/sm90a_schedule.h"
#include "kernels/product/tile_order.h"

namespace noisefloor::product {
namespace {

template <class Visit>
void for_each_block(const Visit& visit) {
  for (const int multicast : {1, 2, 4})
    for (const int multicast_a : {1, 2, 4})
      for (int splits = 1; multicast * multicast_a * splits <= kLargestCluster; ++splits)
        for (int rank = 0; rank < multicast * multicast_a * splits; ++rank)
          visit(Sharing(multicast, multicast_a, rank), splits);
}

bool takes(std::uint16_t mask, int rank) {
  return (mask >> rank & 1) != 0;
}

TEST(product_sharing, EveryBlockHasAPlaceOfItsOwn) {
  for_each_block([](const Sharing& block, int splits) {
    EXPECT_LT(block.m_rank, block.multicast);
    EXPECT_LT(block.n_rank, block.multicast_a);
    EXPECT_LT(block.split, splits);
    EXPECT_EQ(block.rank, (block.split * block.multicast_a + block.n_rank) * block.multicast + block.m_rank);
    for (int split = 0; split < splits; ++split) {
      const Sharing peer(block.multicast, block.multicast_a, block.peer(split));
      EXPECT_EQ(std::tuple(peer.m_rank, peer.n_rank, peer.split), std::tuple(block.m_rank, block.n_rank, split));
    }
  });
}

// A's rows go to the blocks of the same row of tiles, B's to those of the same column, all of one split.
TEST(product_sharing, LoadsGoToTheNeighboursThatNeedThem) {
  for_each_block([](const Sharing& block, int splits) {
    for (int rank = 0; rank < block.sharing * splits; ++rank) {
      const Sharing other(block.multicast, block.multicast_a, rank);
      const bool same = other.split == block.split;
      EXPECT_EQ(takes(block.multicast_mask_a(), rank), same && other.m_rank == block.m_rank);
      EXPECT_EQ(takes(block.multicast_mask_b(), rank), same && other.n_rank == block.n_rank);
    }
    EXPECT_EQ(block.multicast_mask_a() >> (block.sharing * splits), 0);
    EXPECT_EQ(block.multicast_mask_b() >> (block.sharing * splits), 0);
  });
}

// A stage is free when all that take this block's loads have released it: each of them arrives here, and nobody else.
TEST(product_sharing, WhoTakesALoadReleasesItsStage) {
  for_each_block([](const Sharing& block, int) {
    std::set<int> givers;
    for (int i = 0; i < block.givers(); ++i) {
      const Sharing giver(block.multicast, block.multicast_a, block.giver(i));
      EXPECT_TRUE(takes(giver.multicast_mask_a() | giver.multicast_mask_b(), block.rank));
      givers.insert(giver.rank);
    }
    EXPECT_EQ(static_cast<int>(givers.size()), block.givers());
    EXPECT_EQ(block.givers(),
              std::popcount(static_cast<unsigned>(block.multicast_mask_a() | block.multicast_mask_b())));
  });
}

// ---- divisions by a multiplication, and the order of tiles, which is made of them

TEST(divisor, IsExactAtTheEdges) {
  for (const int d :
       {1, 2, 3, 5, 7, 8, 9, 64, 65, 641, 65535, 65536, 65537, 1 << 30, (1 << 30) + 1, INT_MAX - 1, INT_MAX}) {
    const Divider divisor(d);
    EXPECT_EQ(static_cast<int>(divisor), d);
    for (const std::int64_t q : {0, 1, 2, 3, 1000, INT_MAX / d - 1, INT_MAX / d})
      for (const std::int64_t n : {q * d - 1, q * d, q * d + 1, q * d + d - 1}) {
        if (n < 0 || n > INT_MAX) continue;
        EXPECT_EQ(static_cast<int>(n) / divisor, n / d) << n << " / " << d;
        EXPECT_EQ(static_cast<int>(n) % divisor, n % d) << n << " % " << d;
      }
  }
}

RC_GTEST_PROP(divisor, IsDivision, (int n, int d)) {
  n &= INT_MAX;
  d &= INT_MAX >> *rc::gen::inRange(0, 31);
  RC_PRE(d > 0);
  RC_ASSERT(n / Divider(d) == n / d);
  RC_ASSERT(n % Divider(d) == n % d);
}

RC_GTEST_PROP(tile_order, TakesEveryTileOnceInGroups, ()) {
  const int m = *rc::gen::inRange(1, 40), n = *rc::gen::inRange(1, 20);
  const Rasterisation order(m, n);
  RC_ASSERT(order.tiles() == m * n);
  std::set<std::pair<int, int>> seen;
  for (int i = 0; i < m * n; ++i) {
    const TileIndex at = order.locate(i);
    RC_ASSERT(at.m_cluster >= 0 && at.m_cluster < m && at.n_tile >= 0 && at.n_tile < n);
    RC_ASSERT(at.m_cluster / kGroupM == i / (kGroupM * n));
    RC_ASSERT(seen.emplace(at.m_cluster, at.n_tile).second);
  }
}

TEST(tile_order, GoesDownAGroupAndThenOn) {
  const Rasterisation order(10, 2);
  EXPECT_EQ(order.locate(7).m_cluster, 7);
  EXPECT_EQ(order.locate(8).m_cluster, 0);
  EXPECT_EQ(order.locate(8).n_tile, 1);
  EXPECT_EQ(order.locate(16).m_cluster, 8);
  EXPECT_EQ(order.locate(18).n_tile, 1);
}

// ---- stages of a ring: where partial sums arrive, and whose weights are asked for early

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

// How many stages' weights are asked for early.
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

}  // namespace
}  // namespace noisefloor::product
