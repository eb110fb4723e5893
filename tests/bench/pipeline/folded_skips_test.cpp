// A network whose skip connections are in the nodes that read them computes what it computes apart from them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/platform/platform.h"
#include "bench/sweep/suite.h"
#include "networks/fold_skips.h"
#include "networks/fuse_norms.h"
#include "networks/halve_in_norms.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

bool anything(const Op&, const AnyProblem&, DType) {
  return true;
}

std::vector<float> output_of(const Network& network, const Weights& weights) {
  const auto platform = make_host_platform();
  const Plan plan(*platform, suite(), count_problems(network.graph), {});
  Executor executor(*platform, network, weights, plan);
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

double difference(const std::vector<float>& found, const std::vector<float>& wanted) {
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    squares += wanted[i] * wanted[i];
    differences += (found.at(i) - wanted[i]) * (found.at(i) - wanted[i]);
  }
  EXPECT_GT(squares, 0);
  return std::sqrt(differences / squares);
}

TEST(FoldedSkips, ComputeWhatNodesOfTheirOwnDo) {
  const TemporaryFolder folder;
  const NetworkInfo networks[] = {require_network("digits"),
                                  require_network("moving-digits"),
                                  small_network("sd15", kSmall),
                                  small_network("sdxl", kSmallXl),
                                  small_network("svd", kSmallSvd),
                                  small_decoder(4, 8),
                                  small_video_decoder()};
  for (const NetworkInfo& info : networks) {
    SCOPED_TRACE(info.description);
    const BuildOptions options{.dtype = DType::fp32};
    const Network plain = info.build(options);
    Network folded = info.build(options);
    fold_skips(folded, anything);
    halve_in_norms(folded, anything);
    EXPECT_LT(folded.graph.nodes().size(), plain.graph.nodes().size());
    EXPECT_LE(difference(output_of(folded, RandomWeights()), output_of(plain, RandomWeights())), 1e-5);
    write_weights_by_rule(folder / "weights.safetensors", plain.graph);
    const Checkpoint checkpoint(folder / "weights.safetensors");
    EXPECT_NO_THROW(checkpoint.check(folded));
    EXPECT_LE(difference(output_of(folded, checkpoint), output_of(plain, checkpoint)), 1e-5);
  }
}

TEST(FoldedSkips, ATensorOfASumIsCheckedAsOthersAre) {
  const TemporaryFolder folder;
  const std::vector<float> a{1, 2, 3}, b{0.5, 1e5, -3};
  const auto complaint = [&](std::vector<FileTensor> tensors, DType dtype) -> std::string {
    write_safetensors(folder / "w.safetensors", tensors);
    Network network;
    network.info = &require_network("digits");
    WeightSource source{"a", {3}};
    source.plus = "b";
    const ValueId id = network.graph.weight(source, {3}, dtype);
    const Checkpoint checkpoint(folder / "w.safetensors");
    try {
      checkpoint.check(network);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    const std::vector<char> bytes = checkpoint.load(network.graph[id]);
    for (std::size_t i = 0; i < 3; ++i) {
      const float sum = a[i] + b[i];
      alignas(float) char rounded[sizeof(float)];
      store_element(dtype, rounded, 0, sum);
      EXPECT_EQ(load_element(dtype, bytes.data(), static_cast<std::int64_t>(i)), load_element(dtype, rounded, 0));
    }
    return "";
  };
  const FileTensor first{"a", "F32", {3}, std::as_bytes(std::span(a))},
      second{"b", "F32", {3}, std::as_bytes(std::span(b))}, odd{"b", "F32", {1}, std::as_bytes(std::span(b).first(1))};
  EXPECT_EQ(complaint({first, second}, DType::fp32), "");
  EXPECT_EQ(complaint({first, second}, DType::bf16), "");
  EXPECT_NE(complaint({first, second}, DType::fp16).find("b has numbers that fp16 cannot hold"), std::string::npos);
  EXPECT_NE(complaint({first}, DType::fp32).find("b [3] is missing"), std::string::npos);
  EXPECT_NE(complaint({first, odd}, DType::fp32).find("b is [1], not [3]"), std::string::npos);
}

}  // namespace
}  // namespace noisefloor::pipeline
