// Graphs of many launches behind the timer's gate, where a launch that waits for the device waits for ever.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bench/platform/cuda_check.h"
#include "bench/platform/cuda_kernels.h"
#include "bench/platform/platform.h"

namespace noisefloor {
namespace {

// A whole network's cold samples are the first replays of its graph, with other networks' graphs beside it.
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

}  // namespace
}  // namespace noisefloor
