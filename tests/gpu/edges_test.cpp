// What an edge between two kernels takes, on this GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "bench/measure/short_edges.h"
#include "bench/platform/child_process.h"
#include "bench/platform/cuda_kernels.h"
#include "bench/platform/platform.h"
#include "reports/run/statistics.h"

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

// Kernels on many streams make them long; the other process is this program with the test above.
TEST(Edges, AreShortAgainWhenAnotherProcessUsedTheGpu) {
  const auto platform = make_cuda_platform(0);
  const auto time = [&](int samples) { return platform->time_edges(samples); };
  ShortEdges edges(time, [] {
    ChildProcess other({{"gpu_tests", "--gtest_filter=Edges.AreTimedByChainsWithoutWork", "--gtest_brief=1"},
                        {},
                        {},
                        "/proc/self/exe"},
                       ChildRole::lane);
    ASSERT_EQ(other.wait(), 0);
  });
  const double at_first = median(edges.settle(kEdgeSamples));
  std::vector<cudaStream_t> streams(16);
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(harness::do_nothing(stream), cudaSuccess);
  }
  platform->synchronize();
  RecordProperty("us_at_first", std::to_string(at_first));
  RecordProperty("us_behind_streams", std::to_string(median(time(kEdgeSamples))));
  EXPECT_LT(median(edges.settle(kEdgeSamples)), 1.05 * at_first);
  for (cudaStream_t stream : streams) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace noisefloor
