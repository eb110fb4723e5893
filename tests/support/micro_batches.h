// Steps whose batch is split: what its shares tell and add up to, each computed by itself.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/sweep/suite.h"
#include "networks/training.h"

namespace noisefloor::pipeline {

// The first step of a training from random weights, up to its gradients.
struct FirstGradients {
  std::vector<float> losses, gradients;

  FirstGradients(Platform& platform, const NetworkInfo& info, const TrainingOptions& options) {
    const Training training = build_training(info, options);
    const Graph& graph = training.network.graph;
    Executor executor(platform, training.network, RandomWeights(),
                      {platform, suite(), count_problems(graph), {.pool = Pool::tiled}});
    const auto set = [&](ValueId id, const auto& number_of) {
      std::vector<float> numbers(static_cast<std::size_t>(graph[id].elements()));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_of(i);
      platform.upload(executor.data(id), numbers.data(), numbers.size() * sizeof(float));
    };
    const auto get = [&](ValueId id) {
      std::vector<float> numbers(static_cast<std::size_t>(graph[id].elements()));
      platform.download(numbers.data(), executor.data(id), numbers.size() * sizeof(float));
      return numbers;
    };
    set(training.images, [](std::size_t i) { return std::sin(static_cast<float>(i)); });
    if (training.labels) set(*training.labels, [](std::size_t i) { return static_cast<float>(i % 3); });
    set(training.step, [](std::size_t i) { return i == 0 ? 1.0f : 0.0f; });
    set(training.rates, [](std::size_t) { return 0.5f; });
    throw_if_failed(executor.enqueue());
    platform.synchronize();
    for (const ValueId loss : training.losses) losses.push_back(get(loss).at(0));
    gradients = get(training.gradients);
  }
};

// Shares that others compute, each by itself, add up in their order to the bits of micro-batches of one device, and up
// to rounding to the whole batch.
inline void expect_sums_of_shares(Platform& platform, const NetworkInfo& info, DType dtype, double tolerance) {
  TrainingOptions options{.batch = 6, .images = 9, .dtype = dtype, .shifted = 0.5, .flipped = 0.5};
  const FirstGradients whole(platform, info, options);
  options.parts = 3;
  const FirstGradients split(platform, info, options);
  options.parts = 1, options.devices = 3;
  std::vector<float> sum, losses;
  for (; options.device < 3; ++options.device) {
    const FirstGradients share(platform, info, options);
    losses.push_back(share.losses.at(0));
    if (sum.empty())
      sum = share.gradients;
    else
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += share.gradients[i];
  }
  EXPECT_EQ(split.losses, losses);
  EXPECT_EQ(split.gradients, sum);
  EXPECT_NEAR((losses[0] + losses[1] + losses[2]) / 3, whole.losses.at(0), tolerance * whole.losses.at(0));
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    squares += std::pow(whole.gradients[i], 2);
    differences += std::pow(whole.gradients[i] - sum[i], 2);
  }
  EXPECT_GT(squares, 0);
  EXPECT_LE(std::sqrt(differences / squares), tolerance);
}

}  // namespace noisefloor::pipeline
