// Which blocks of a cluster share operands: every cluster that there may be, and every block of it.
#include "kernels/product/sharing.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <tuple>

#include "kernels/product/sm90a_schedule.h"

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

}  // namespace
}  // namespace noisefloor::product
