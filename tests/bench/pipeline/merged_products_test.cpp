// A network whose projections are one product computes what it does with each by itself, of one image and of two.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/platform/platform.h"
#include "bench/sweep/suite.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

// The first image's output, of `batch` images that are all the same.
std::vector<float> first_output(std::int64_t batch, bool merge, const Weights& weights) {
  const auto platform = make_host_platform();
  const Network network =
      require_network("digits").build({.batch = batch, .dtype = DType::fp32, .merge_products = merge});
  const Plan plan(*platform, suite(), count_problems(network.graph), {});
  Executor executor(*platform, network, weights, plan);
  for (const NetworkTensor& input : network.inputs) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const Value& value = network.graph[input.value];
    const std::int64_t image = value.elements() / batch;
    for (std::int64_t i = 0; i < image; ++i) {
      float number = std::abs(normal(random)) + 0.5f;
      if (input.kind == NetworkTensor::Kind::labels) number = i == 3 ? 1.0f : 0.0f;
      for (std::int64_t n = 0; n < batch; ++n)
        store_element(value.dtype, executor.data(input.value), n * image + i, number);
    }
  }
  throw_if_failed(executor.enqueue());
  const Value& output = network.graph[network.output()];
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < output.elements() / batch; ++i)
    numbers.push_back(static_cast<float>(load_element(output.dtype, executor.data(network.output()), i)));
  return numbers;
}

double difference(std::int64_t batch, const Weights& weights) {
  const std::vector<float> merged = first_output(batch, true, weights), apart = first_output(batch, false, weights);
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < apart.size(); ++i) {
    squares += apart[i] * apart[i];
    differences += (merged.at(i) - apart[i]) * (merged.at(i) - apart[i]);
  }
  EXPECT_GT(squares, 0);
  return std::sqrt(differences / squares);
}

TEST(MergedProducts, ComputeWhatTheyDoApart) {
  const TemporaryFolder folder;
  write_weights_by_rule(folder / "w.safetensors", require_network("digits").build({.merge_products = false}).graph);
  for (const std::int64_t batch : {1, 2}) {
    EXPECT_LE(difference(batch, RandomWeights()), 1e-5) << batch;
    EXPECT_LE(difference(batch, Checkpoint(folder / "w.safetensors")), 1e-5) << batch;
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
