// A U-Net built as its original computes it gives the same as ours, which computes once what blocks have in common, and
// leaves out what a rule lets it: over one key softmax is 1. tests/cli/test_problems.py holds its layers to diffusers'.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/pipeline/checkpoint.h"
#include "tests/support/on_host.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

using Numbers = std::vector<float>;

// x and sigma of ours as a video's scheduler gives them to the original.
void scale_as_scheduler(std::vector<Numbers>& inputs) {
  Numbers &x = inputs.at(0), &sigma = inputs.at(1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] /= std::hypot(1.0f, sigma[i / (x.size() / sigma.size())]);
  for (float& level : sigma) level = std::log(level) / 4;
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
  for (const auto& [info, tokens, over_one_key] : {Case{small_network("sd15", kSmall), 0, 0},
                                                   {small_network("sd15", kSmall), 1, 4},
                                                   {small_network("sdxl", kSmallXl), 0, 0},
                                                   {small_network("svd", kSmallSvd), 0, 2 * 4}}) {
    BuildOptions options{.batch = 2, .dtype = DType::fp32, .sizes = {.tokens = tokens}};
    const TemporaryFolder folder;
    write_weights_by_rule(folder / "weights.safetensors", info.build(options).graph);
    const Checkpoint weights(folder / "weights.safetensors");
    OnHost ours(info, options, weights);
    options.original = true;
    OnHost original(info, options, weights);
    weights.check(original.network);
    EXPECT_EQ(attentions_to_one_key(ours.network), 0);
    EXPECT_EQ(attentions_to_one_key(original.network), over_one_key);
    ours.fill();
    std::vector<Numbers> inputs;
    for (const NetworkTensor& input : ours.network.inputs) inputs.push_back(ours.held(input.value));
    if (info.most_frames > 1) scale_as_scheduler(inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) original.set(original.network.inputs.at(i), inputs[i]);
    for (OnHost* host : {&ours, &original}) throw_if_failed(host->executor.enqueue());
    EXPECT_LE(distance(original.held(original.network.output()), ours.held(ours.network.output())), 1e-5)
        << tokens << " tokens of " << inputs.size() << " inputs";
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
