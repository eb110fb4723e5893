// Divisions by a multiplication, and the order of tiles, which is made of them.
#include "kernels/product/tile_order.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <climits>
#include <set>
#include <utility>

namespace noisefloor::product {
namespace {

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

}  // namespace
}  // namespace noisefloor::product
