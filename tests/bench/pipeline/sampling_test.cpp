// The sampling loop over several batches: what is recorded once, what for each, and that pictures do not tell.
#include "bench/pipeline/sampling.h"

#include <gtest/gtest.h>

#include "bench/sweep/suite.h"
#include "tests/support/limited_platform.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::Solver;

struct Digits {
  LimitedPlatform platform{std::size_t{1} << 30};
  Network network = require_network("digits").build({.batch = 2, .dtype = DType::fp32, .sampling = true});
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

// Every solver, and what options make of it. A launch is kept for each step, and for each second half but the last's.
TEST(Sampler, RecordsOnceWhereNoNoiseIsDrawnElseEachBatchAndKeepsOnlyTheLast) {
  constexpr int kSteps = 3;
  Digits digits;
  for (const sampler_step::SolverRow& row : sampler_step::solvers()) {
    SCOPED_TRACE(row.name);
    std::size_t launches = kSteps;
    for (int step = 0; step + 1 < kSteps; ++step) launches += static_cast<std::size_t>(row.calls_of(step) - 1);
    const SamplingOptions plain{.solver = row.solver, .schedule = row.schedule, .steps = kSteps};
    const bool noisy = sampler_step::stochastic(row, 0);
    EXPECT_EQ(recordings_of(digits, plain, launches), noisy ? kBatches : 1);
    SamplingOptions more = plain;
    if (row.takes_eta()) {
      more.eta = 1;
      EXPECT_EQ(recordings_of(digits, more, launches), kBatches);
    }
    if (row.calls == 2 && row.churns) {
      more.churn = 10;
      EXPECT_EQ(recordings_of(digits, more, launches + kSteps), kBatches);
    }
  }
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
