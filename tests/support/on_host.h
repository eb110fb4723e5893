// A network on the host, in naive variants, with memory of its own.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/sweep/suite.h"
#include "tests/support/host_platforms.h"

namespace noisefloor::pipeline {

struct OnHost {
  OnHost(NetworkInfo row, const BuildOptions& options, const Weights& weights = RandomWeights())
      : info(std::move(row)),
        network(info.build(options)),
        executor(platform, network, weights, {platform, suite(), count_problems(network.graph), {"naive"}}) {}
  OnHost(const OnHost&) = delete;

  void set(const NetworkTensor& input, const std::vector<float>& numbers) {
    const Value& value = network.graph[input.value];
    ASSERT_EQ(std::ssize(numbers), value.elements());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      store_element(value.dtype, executor.data(input.value), static_cast<std::int64_t>(i), numbers[i]);
  }
  std::vector<float> held(ValueId value) const {  // in fp32
    const auto* found = static_cast<const float*>(executor.data(value));
    return {found, found + network.graph[value].elements()};
  }
  // All inputs, drawn or as they are filled for timing.
  void fill(std::uint64_t seed = 1) {
    for (const NetworkTensor& input : network.inputs) {
      const Value& value = network.graph[input.value];
      if (drawn(input.kind))
        platform.fill_normal(value.dtype, executor.data(input.value), value.elements(), 0, 1, seed + input.value);
      else
        fill_for_timing(input, value.dtype, executor.data(input.value));
    }
  }
  std::vector<float> call(const std::vector<float>& x) {
    set(network.inputs.front(), x);
    throw_if_failed(executor.enqueue());
    return held(network.output());
  }

  LimitedPlatform platform{std::size_t{1} << 30};
  NetworkInfo info;
  Network network;
  Executor executor;
};

// Counts launches by node.
struct Counting : LaunchListener {
  void before(const LaunchLabel& label) override { ++launches[label.node]; }
  void after() override {}
  std::map<std::string, int> launches;
};

}  // namespace noisefloor::pipeline
