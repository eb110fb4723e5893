// The sampling loop over several batches: what is recorded once, what for each, and that pictures do not tell.
#include "bench/pipeline/sampling.h"

#include <gtest/gtest.h>

#include "bench/sweep/suite.h"
#include "tests/support/limited_platform.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::Schedule, sampler_step::Solver;

struct Digits {
  LimitedPlatform platform{std::size_t{1} << 30};
  Network network = build_digits({.batch = 2, .dtype = DType::fp32, .sampling = true});
  Plan plan{platform, suite(), count_problems(network.graph), {}};
  Executor executor{platform, network, RandomWeights(), plan};
};

constexpr int kBatches = 3;

// Draws batches with one sampler, and each with one of its own; returns how often the first recorded. `kept`: what it
// may hold in the end.
int recordings_of(Digits& digits, const SamplingOptions& options, std::size_t kept) {
  Sampler sampler(digits.platform, digits.executor, options);
  int recordings = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const std::vector<int> labels{batch, batch + 5};
    const int before = digits.platform.recordings;
    const std::vector<float> images = sampler.run(labels, 2 * batch);
    recordings += digits.platform.recordings - before;
    Sampler fresh(digits.platform, digits.executor, options);
    EXPECT_EQ(images, fresh.run(labels, 2 * batch)) << "batch " << batch;
    EXPECT_EQ(sampler.runners(), kept) << "batch " << batch;
  }
  return recordings;
}

TEST(Sampler, RecordsOnceWhereNoNoiseIsDrawn) {
  Digits digits;
  EXPECT_EQ(recordings_of(digits, {.solver = Solver::edm_heun, .steps = 3}, 3 + 2), 1);
  EXPECT_EQ(recordings_of(digits, {.solver = Solver::edm_euler, .steps = 3}, 3), 1);
  EXPECT_EQ(recordings_of(digits, {.solver = Solver::dpmpp_2m, .steps = 4}, 4), 1);
  EXPECT_EQ(recordings_of(digits, {.solver = Solver::ddim, .schedule = Schedule::linear, .steps = 3}, 3), 1);
}

TEST(Sampler, RecordsEachBatchWhereNoiseIsDrawnAndKeepsOnlyTheLast) {
  Digits digits;
  EXPECT_EQ(recordings_of(digits, {.solver = Solver::ddpm, .schedule = Schedule::linear, .steps = 3}, 3), kBatches);
  EXPECT_EQ(recordings_of(digits, {.solver = Solver::ddim, .schedule = Schedule::linear, .steps = 3, .eta = 1}, 3),
            kBatches);
  EXPECT_EQ(recordings_of(digits, {.solver = Solver::edm_heun, .steps = 3, .churn = 10}, 3 + 2 + 3), kBatches);
}

TEST(Sampler, WatchedStepByStepDrawsTheSame) {
  Digits digits;
  Sampler sampler(digits.platform, digits.executor, {.solver = Solver::dpmpp_2m, .steps = 4});
  const std::vector<int> labels{1, 2};
  int seen = 0;
  const std::vector<float> watched = sampler.run(labels, 6, [&](int, const void*) { ++seen; });
  EXPECT_EQ(seen, 1 + 4);
  EXPECT_EQ(digits.platform.recordings, 0);
  EXPECT_EQ(watched, sampler.run(labels, 6));
}

}  // namespace
}  // namespace noisefloor::pipeline
