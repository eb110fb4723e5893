// The U-Nets of latent diffusion held to diffusers' own outputs, at a reduced width. diffusers_unet.py wrote the files.
// tests/cli/test_problems.py holds their layers to diffusers'.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

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
  for (const NetworkTensor& input : network.inputs) {
    std::vector<float> numbers = recorded_numbers(file, input.name);
    if (input.kind == NetworkTensor::Kind::image)
      numbers = channels_last_of(numbers, 4, static_cast<std::size_t>(network.image.pixels()));
    host.set(input, numbers);
  }
  throw_if_failed(host.executor.enqueue());
  const std::vector<std::int64_t>& shape = network.outputs.front().shape;
  const auto channels = static_cast<std::size_t>(shape.back());
  const auto drawn = static_cast<std::size_t>(shape[shape.size() - 3] * shape[shape.size() - 2]);
  return distance(host.held(network.output()), channels_last_of(recorded_numbers(file, "output"), channels, drawn));
}

TEST(Diffusers, TheNetworksAreWhatItComputes) {
  const std::pair<std::string, NetworkInfo> networks[] = {{"small_unet", small_network("sd15", kSmall)},
                                                          {"small_sdxl", small_network("sdxl", kSmallXl)},
                                                          {"small_svd", small_network("svd", kSmallSvd)},
                                                          {"small_svd_vae", small_video_decoder()}};
  for (const auto& [name, info] : networks)
    for (const auto& [dtype, limit] :
         {std::pair{DType::fp32, 1e-5}, std::pair{DType::bf16, info.decodes() ? 1e-2 : 2e-2}}) {
      const double error = error_in(dtype, info, name);
      EXPECT_LE(error, limit) << name << ' ' << to_string(dtype);
      RecordProperty(name + "_" + to_string(dtype), std::to_string(1e6 * error) + "e-6");
    }
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

}  // namespace
}  // namespace noisefloor::pipeline
