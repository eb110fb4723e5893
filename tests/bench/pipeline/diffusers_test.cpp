// The U-Nets of latent diffusion held to diffusers' own outputs, at a reduced width. diffusers_unet.py wrote the files.
// tests/cli/test_problems.py holds their layers to diffusers'.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "bench/pipeline/checkpoint.h"
#include "tests/support/on_host.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

const std::filesystem::path kFolder = "tests/bench/pipeline";
const std::filesystem::path kWeights = kFolder / "small_unet.safetensors";

// Relative L2 of a call in `dtype`, with the weights NAME.safetensors, or where there are none by rule.
double error_in(DType dtype, const NetworkInfo& info, const std::string& name) {
  const Network network = info.build({.batch = 2, .dtype = dtype});
  const TemporaryFolder folder;
  std::filesystem::path checkpoint = kFolder / (name + ".safetensors");
  if (!std::filesystem::exists(checkpoint)) {
    checkpoint = folder / "weights.safetensors";
    write_weights_by_rule(checkpoint, network.graph);
  }
  const Checkpoint weights(checkpoint);
  weights.check(network);
  const SafetensorsFile file(kFolder / (name + "_forward.safetensors"));
  OnHost host(info, {.batch = 2, .dtype = dtype}, weights);
  for (const NetworkTensor& input : network.inputs)
    host.set(input, input.kind == NetworkTensor::Kind::image ? recorded_images(file, input.name)
                                                             : recorded_numbers(file, input.name));
  throw_if_failed(host.executor.enqueue());
  return distance(host.held(network.output()), recorded_images(file, "output"));
}

TEST(Diffusers, TheNetworksAreWhatItComputes) {
  const std::pair<std::string, NetworkInfo> networks[] = {{"small_unet", small_network("sd15", kSmall)},
                                                          {"small_sdxl", small_network("sdxl", kSmallXl)},
                                                          {"small_svd", small_network("svd", kSmallSvd)},
                                                          {"small_svd_vae", small_video_decoder()}};
  for (const auto& [name, info] : networks)
    for (const auto& [dtype, limit] :
         {std::pair{DType::fp32, 1e-5}, std::pair{DType::bf16, info.decodes() ? 1e-2 : 2e-2}})
      EXPECT_LE(error_in(dtype, info, name), limit) << name << ' ' << to_string(dtype);
}

// Of three projections that are one product here, and of what it has no use for.
TEST(Diffusers, EveryTensorOfTheCheckpointIsAsked) {
  const NetworkInfo info = small_network("sd15", kSmall);
  const Network network = info.build({});
  EXPECT_NO_THROW(Checkpoint(kWeights).check(network));
  const TemporaryFolder folder;
  write_changed(kWeights, folder / "w.safetensors", [](FileTensor& tensor, const std::vector<std::byte>&) {
    if (tensor.name.ends_with("0.attn1.to_k.weight")) tensor.name += ".odd";
  });
  expect_parts(
      refusal_of([&] { Checkpoint(folder / "w.safetensors").check(network); }),
      {"8 of its tensors", "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_k.weight [16, 16] is missing",
       "mid_block.attentions.0.transformer_blocks.0.attn1.to_k.weight [32, 32] is missing",
       "attn1.to_k.weight.odd is not a tensor of small"});
}

// ---- a U-Net built as its original computes it: ours leaves out what a rule lets it (over one key softmax is 1)

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
