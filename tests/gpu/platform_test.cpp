// A platform's own services on a GPU: comparisons, recordings, and what an edge between two kernels takes.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bench/measure/timing_loop.h"
#include "bench/platform/child_process.h"
#include "bench/platform/cuda_kernels.h"
#include "bench/platform/cuda_timing.h"
#include "bench/platform/platform.h"
#include "reports/run/statistics.h"
#include "tests/support/comparisons.h"

namespace noisefloor {
namespace {

// As tests/bench/measure/verify_test.cpp has it on the host.
TEST(Comparisons, AreThoseOfAPlainLoop) {
  const auto platform = make_cuda_platform(0);
  check_comparisons(*platform, [](const std::string& wrong) { ADD_FAILURE() << wrong; });
}

// A launch that waits for the device would wait for ever. A whole network's cold samples are the first replays of its
// graph, with other networks' graphs beside it.
TEST(Recordings, ReplayForTheFirstTimeBehindTheGate) {
  const auto platform = make_cuda_platform(0);
  const auto stream = static_cast<cudaStream_t>(platform->context().stream);
  std::vector<std::unique_ptr<Recording>> beside;
  for (const int nodes : {500, 1000, 2000, 4000, 2000, 1000, 500, 8000}) {
    const auto launch = [&] {
      for (int i = 0; i < nodes; ++i) CUDA_CHECK(harness::do_nothing(stream));
      return success();
    };
    beside.push_back(platform->record(launch));
    const auto replay = [recording = beside.back().get()] {
      recording->replay();
      return success();
    };
    EXPECT_EQ(platform->time_cold(replay, 4, {}).size(), 4u) << nodes;
  }
}

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
  EdgeLatency edges(time, [] {
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
