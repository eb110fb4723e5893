// A U-Net built as its original computes it gives the same as ours, which computes once what blocks have in common, and
// leaves out what a rule lets it: over one key softmax is 1. tests/cli/test_problems.py holds its layers to diffusers'.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/executor.h"
#include "bench/sweep/suite.h"
#include "networks/network.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

using Numbers = std::vector<float>;

// All inputs of a network in fp32, drawn or filled.
std::vector<Numbers> inputs_of(const Network& network, Platform& platform) {
  std::vector<Numbers> inputs;
  for (const NetworkTensor& input : network.inputs) {
    Numbers numbers(static_cast<std::size_t>(network.graph[input.value].elements()));
    if (drawn(input.kind))
      platform.fill_normal(DType::fp32, numbers.data(), std::ssize(numbers), 0, 1, 7 + inputs.size());
    else
      fill_for_timing(input, DType::fp32, numbers.data());
    inputs.push_back(std::move(numbers));
  }
  return inputs;
}

// x and sigma of ours as a video's scheduler gives them to the original.
void scale_as_scheduler(std::vector<Numbers>& inputs) {
  Numbers &x = inputs.at(0), &sigma = inputs.at(1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] /= std::hypot(1.0f, sigma[i / (x.size() / sigma.size())]);
  for (float& level : sigma) level = std::log(level) / 4;
}

Numbers computed(const Network& network, const Checkpoint& weights, Platform& platform,
                 const std::vector<Numbers>& inputs) {
  weights.check(network);
  Executor executor(platform, network, weights, {platform, suite(), count_problems(network.graph), {"naive"}});
  for (std::size_t i = 0; i < inputs.size(); ++i)
    std::ranges::copy(inputs[i], static_cast<float*>(executor.data(network.inputs.at(i).value)));
  throw_if_failed(executor.enqueue());
  const auto* found = static_cast<const float*>(executor.data(network.output()));
  return {found, found + network.graph[network.output()].elements()};
}

int attentions_to_one_key(const Network& network) {
  return static_cast<int>(std::ranges::count_if(network.graph.nodes(), [](const Node& node) {
    return node.op->name == "attention" && node.text.find("seq_kv=1,") != std::string::npos;
  }));
}

TEST(Original, ComputesWhatOursDoes) {
  struct Case {
    NetworkInfo info;
    std::int64_t tokens;  // 0: those of the row
    int over_one_key;     // of the original
  };
  const auto platform = make_host_platform();
  for (const auto& [info, tokens, over_one_key] : {Case{small_network("sd15", kSmall), 0, 0},
                                                   {small_network("sd15", kSmall), 1, 4},
                                                   {small_network("sdxl", kSmallXl), 0, 0},
                                                   {small_network("svd", kSmallSvd), 0, 2 * 4}}) {
    BuildOptions options{.batch = 2, .dtype = DType::fp32, .sizes = {.tokens = tokens}};
    const Network ours = info.build(options);
    options.original = true;
    const Network original = info.build(options);
    EXPECT_EQ(attentions_to_one_key(ours), 0);
    EXPECT_EQ(attentions_to_one_key(original), over_one_key);
    const TemporaryFolder folder;
    write_weights_by_rule(folder / "weights.safetensors", ours.graph);
    const Checkpoint weights(folder / "weights.safetensors");
    std::vector<Numbers> inputs = inputs_of(ours, *platform);
    const Numbers expected = computed(ours, weights, *platform, inputs);
    if (info.most_frames > 1) scale_as_scheduler(inputs);
    EXPECT_LE(distance(computed(original, weights, *platform, inputs), expected), 1e-5)
        << tokens << " tokens of " << ours.inputs.size() << " inputs";
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
