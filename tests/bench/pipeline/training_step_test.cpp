// A training step on a platform: its states live from step to step, and what is prepared of weights follows them.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/platform/platform.h"
#include "bench/sweep/suite.h"
#include "networks/training.h"
#include "tests/support/interpreter.h"
#include "tests/support/micro_batches.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/small_networks.h"

namespace noisefloor::pipeline {
namespace {

// The same step by the oracles, from the states that the executor has before it.
void expect_the_oracles_step(const NetworkInfo& info) {
  const Training training = build_training(info, {.batch = 3, .images = 5, .clip = 0.5, .decay = 0.1});
  const Graph& graph = training.network.graph;
  const auto platform = make_host_platform();
  Executor executor(*platform, training.network, RandomWeights(),
                    {*platform, suite(), count_problems(graph), {.source = "own"}});
  Interpreter oracles(graph);
  const auto held = [&](ValueId id) {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < graph[id].elements(); ++i)
      numbers.push_back(load_element(graph[id].dtype, executor.data(id), i));
    return numbers;
  };
  const auto set = [&](ValueId id, const std::vector<double>& numbers) {
    oracles.set(id, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      store_element(graph[id].dtype, executor.data(id), static_cast<std::int64_t>(i), numbers[i]);
  };
  std::vector<double> images;
  for (std::int64_t i = 0; i < graph[training.images].elements(); ++i)
    images.push_back(std::sin(static_cast<double>(i)));
  set(training.images, images);
  if (training.labels) set(*training.labels, {0, 1, 2, 1, 0});
  EXPECT_EQ(held(training.parameters), held(*training.ema));  // filled as weights are
  for (const double number : held(training.m)) ASSERT_EQ(number, 0);

  const auto need = executor_bytes(training.network, platform->description(), [](std::size_t) { return nullptr; });
  EXPECT_GE(*need, executor.bytes());  // to the byte, but for what measuring takes
  EXPECT_LE(*need, 2 * executor.bytes());

  const std::vector<ValueId> states{training.parameters, training.m, training.v, *training.ema, training.gradients};
  for (int step = 0; step < 3; ++step) {
    set(training.step, {static_cast<double>(step), 0});
    set(training.rates, {0.05, 1 / (1 - std::pow(0.9, step + 1)), 1 / (1 - std::pow(0.999, step + 1)), 0.5});
    for (const ValueId state : states) oracles.set(state, held(state));
    const std::vector<double> before = held(training.parameters);
    throw_if_failed(executor.enqueue());
    oracles.run(0, graph.nodes().size());
    for (const ValueId id : {training.losses.front(), training.norm})
      EXPECT_LE(distance(held(id), oracles.all(id)), 1e-5);
    // AdamW's first steps are of one size whichever the gradient: their sign is what small ones may differ in.
    for (const ValueId state : states) EXPECT_LE(distance(held(state), oracles.all(state)), 1e-3) << graph[state].name;
    EXPECT_LE(distance(held(training.gradients), oracles.all(training.gradients)), 2e-5);
    EXPECT_GT(distance(held(training.parameters), before), 0.01);
  }
}

TEST(TrainingStep, IsWhatTheOraclesMakeOfTheSameStates) {
  for (const NetworkInfo& info : {small_trained(), small_relu_unet(), small_pooling_unet()})
    expect_the_oracles_step(info);
}

TEST(TrainingStep, AddsItsMicroBatchesInTheOrderOfTheirImages) {
  const auto platform = make_host_platform();
  for (const NetworkInfo& info : {small_trained(), small_relu_unet(), small_pooling_unet()})
    expect_sums_of_shares(*platform, info, DType::fp32, 1e-5);
}

}  // namespace
}  // namespace noisefloor::pipeline
