// What an edge between two kernels takes, on this GPU.
#include <gtest/gtest.h>

#include "bench/platform/platform.h"
#include "reports/statistics.h"

namespace noisefloor {
namespace {

TEST(Edges, AreTimedByChainsWithoutWork) {
  const auto platform = make_cuda_platform(0);
  for (int time = 0; time < 2; ++time) {
    const auto edges = platform->time_edges(4);
    ASSERT_EQ(edges.size(), 4u);
    EXPECT_GT(median(edges), 0.2);
    EXPECT_LT(median(edges), 10);
  }
}

}  // namespace
}  // namespace noisefloor
