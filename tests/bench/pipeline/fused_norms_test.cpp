// A network whose convolutions norm their input themselves computes what it computes with nodes of groupnorm.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/platform/platform.h"
#include "bench/sweep/suite.h"
#include "networks/fuse_norms.h"

namespace noisefloor::pipeline {
namespace {

std::vector<float> output_of(const char* name, bool fused) {
  const auto platform = make_host_platform();
  Network network = require_network(name).build({.dtype = DType::bf16});
  if (fused) fuse_norms(network, {.least_bytes = 0, .most_outputs = 1 << 20});
  const Plan plan(*platform, suite(), count_problems(network.graph), {});
  Executor executor(*platform, network, RandomWeights(), plan);
  for (const NetworkTensor& input : network.inputs) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const Value& value = network.graph[input.value];
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      float number = std::abs(normal(random)) + 0.5f;
      if (input.kind == NetworkTensor::Kind::labels) number = i == 3 ? 1.0f : 0.0f;
      store_element(value.dtype, executor.data(input.value), i, number);
    }
  }
  throw_if_failed(executor.enqueue());
  const Value& output = network.graph[network.output()];
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < output.elements(); ++i)
    numbers.push_back(static_cast<float>(load_element(output.dtype, executor.data(network.output()), i)));
  return numbers;
}

// Both round a normed input to bf16 once, of sums that differ in their last bits of fp32: an input in some hundreds is
// rounded the other way, by a 256th.
TEST(FusedNorms, ComputeWhatNodesOfGroupnormDo) {
  const std::vector<float> fused = output_of("digits", true), apart = output_of("digits", false);
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < apart.size(); ++i) {
    squares += apart[i] * apart[i];
    differences += (fused.at(i) - apart[i]) * (fused.at(i) - apart[i]);
  }
  EXPECT_GT(squares, 0);
  EXPECT_LE(std::sqrt(differences / squares), 5e-3);
  EXPECT_NE(fused, apart);  // other nodes ran
}

}  // namespace
}  // namespace noisefloor::pipeline
