// What an edge between two kernels takes, on this GPU: one number again and again.
#include <gtest/gtest.h>

#include "bench/platform/platform.h"
#include "reports/statistics.h"

namespace noisefloor {
namespace {

TEST(Edges, AreTimedByChainsWithoutWork) {
  const auto platform = make_cuda_platform(0);
  const auto first = platform->time_edges(4), second = platform->time_edges(4);
  ASSERT_EQ(first.size(), 4u);
  EXPECT_GT(median(first), 0.2);
  EXPECT_LT(median(first), 10);
  EXPECT_NEAR(median(second), median(first), 0.1 * median(first));
}

}  // namespace
}  // namespace noisefloor
