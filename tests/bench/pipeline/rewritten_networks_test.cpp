// A network whose graph was rewritten computes what it computed before.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/platform/platform.h"
#include "bench/sweep/suite.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/refusal.h"
#include "tests/support/rewritten.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

// Of images that are all the same.
std::vector<float> output_of(const Network& network, const Weights& weights) {
  const auto platform = make_host_platform();
  Executor executor(*platform, network, weights, {*platform, suite(), count_problems(network.graph), {}});
  for (const NetworkTensor& input : network.inputs) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const Value& value = network.graph[input.value];
    const std::int64_t image = value.elements() / network.batch;
    for (std::int64_t i = 0; i < image; ++i) {
      float number = std::abs(normal(random)) + 0.5f;
      if (input.kind == NetworkTensor::Kind::labels) number = i == 3 ? 1.0f : 0.0f;
      for (std::int64_t n = 0; n < network.batch; ++n)
        store_element(value.dtype, executor.data(input.value), n * image + i, number);
    }
  }
  throw_if_failed(executor.enqueue());
  const Value& output = network.graph[network.output()];
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < output.elements(); ++i)
    numbers.push_back(static_cast<float>(load_element(output.dtype, executor.data(network.output()), i)));
  return numbers;
}

struct Rewritten {
  NetworkInfo info;
  const char* by;  // which pattern
  Fusions fusions;
  BuildOptions options = {.dtype = DType::fp32};
  double limit = 1e-5;
  bool checkpoint = true;  // with weights of one, too
};

std::vector<Rewritten> rewritten() {
  const Fusions merge{.merge_products = true}, fold{.fold_skips = true, .runs = anything},
      norms{.fuse_norms = kEveryNorm};
  const NetworkInfo digits = require_network("digits");
  std::vector<Rewritten> all;
  for (const NetworkInfo& info :
       {digits, require_network("moving-digits"), small_network("sd15", kSmall), small_network("sdxl", kSmallXl),
        small_network("svd", kSmallSvd), small_decoder(4, 8), small_video_decoder()})
    all.push_back({info, "fold_skips", fold});
  for (const std::int64_t batch : {1, 2})
    all.push_back({digits, "merge_products", merge, {.batch = batch, .dtype = DType::fp32, .merge_products = false}});
  // Both round a normed input to bf16 once, of sums that differ in their last bits of fp32: an input in some hundreds
  // is rounded the other way, by a 256th.
  all.push_back({digits, "fuse_norms", norms, {.dtype = DType::bf16}, 5e-3, false});
  return all;
}

TEST(RewrittenNetworks, ComputeWhatTheyComputedBefore) {
  const TemporaryFolder folder;
  for (const Rewritten& one : rewritten()) {
    SCOPED_TRACE(std::string(one.by) + ": " + one.info.description);
    const Network plain = one.info.build(one.options);
    Network changed = one.info.build(one.options);
    fuse(changed, one.fusions);
    const auto texts = [](const Network& network) {
      std::vector<std::string> all;
      for (const Node& node : network.graph.nodes()) all.push_back(node.text);
      return all;
    };
    EXPECT_NE(texts(changed), texts(plain));  // other nodes run
    EXPECT_LE(distance(output_of(changed, RandomWeights()), output_of(plain, RandomWeights())), one.limit);
    if (!one.checkpoint) continue;
    write_weights_by_rule(folder / "weights.safetensors", plain.graph);
    const Checkpoint checkpoint(folder / "weights.safetensors");
    EXPECT_NO_THROW(checkpoint.check(changed));
    EXPECT_LE(distance(output_of(changed, checkpoint), output_of(plain, checkpoint)), one.limit);
  }
}

TEST(RewrittenNetworks, ATensorOfASumIsCheckedAsOthersAre) {
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
    if (const std::string said = refusal_of([&] { checkpoint.check(network); }); !said.empty()) return said;
    std::vector<char> bytes(network.graph[id].bytes());
    checkpoint.load(network.graph[id], bytes);
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
