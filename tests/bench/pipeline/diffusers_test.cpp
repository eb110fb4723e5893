// The U-Nets of latent diffusion held to diffusers' own outputs, at a reduced width. diffusers_unet.py wrote the files.
// tests/cli/test_problems.py holds their layers to diffusers'.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/executor.h"
#include "bench/sweep/suite.h"
#include "tests/support/recorded_tensors.h"
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
  const auto platform = make_host_platform();
  Executor executor(*platform, network, weights, {*platform, suite(), count_problems(network.graph), {"naive"}});
  const auto pixels = static_cast<std::size_t>(network.image.pixels());
  for (const NetworkTensor& input : network.inputs) {
    std::vector<float> numbers = recorded_numbers(file, input.name);
    if (input.kind == NetworkTensor::Kind::image) numbers = channels_last_of(numbers, 4, pixels);
    const Value& value = network.graph[input.value];
    for (std::size_t i = 0; i < numbers.size(); ++i)
      store_element(value.dtype, executor.data(input.value), static_cast<std::int64_t>(i), numbers[i]);
  }
  throw_if_failed(executor.enqueue());
  const std::vector<std::int64_t>& shape = network.outputs.front().shape;
  const auto channels = static_cast<std::size_t>(shape.back());
  const auto drawn = static_cast<std::size_t>(shape[shape.size() - 3] * shape[shape.size() - 2]);
  const std::vector<float> expected = channels_last_of(recorded_numbers(file, "output"), channels, drawn);
  const auto* found = static_cast<const float*>(executor.data(network.output()));
  return distance({found, found + expected.size()}, expected);
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

// What later versions have otherwise: several blocks a transformer, between matrices.
TEST(Diffusers, TransformersAreOfSeveralBlocksAndOtherProjections) {
  const NetworkInfo info = small_network(
      "sd15", {.levels = {{32, 2, 0}, {64, 4, 2}}, .middle_transformer_blocks = 3, .linear_projection = true});
  const Network network = info.build({});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Value& value : network.graph.values())
    if (value.source) shapes[value.source->name] = value.source->file;
  const std::vector<std::int64_t> matrix{64, 64};
  EXPECT_EQ(shapes.at("down_blocks.1.attentions.1.proj_in.weight"), matrix);
  EXPECT_EQ(shapes.at("up_blocks.0.attentions.2.proj_out.weight"), matrix);
  EXPECT_TRUE(shapes.contains("down_blocks.1.attentions.1.transformer_blocks.1.ff.net.2.weight"));
  EXPECT_FALSE(shapes.contains("down_blocks.1.attentions.1.transformer_blocks.2.ff.net.2.weight"));
  EXPECT_TRUE(shapes.contains("mid_block.attentions.0.transformer_blocks.2.ff.net.2.weight"));
  EXPECT_FALSE(shapes.contains("down_blocks.0.attentions.0.norm.weight"));
  EXPECT_EQ(shapes.at("down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight").back(), 768);
}

TEST(Diffusers, EveryTensorOfTheCheckpointIsAsked) {
  const NetworkInfo info = small_network("sd15", kSmall);
  const Network network = info.build({});
  EXPECT_NO_THROW(Checkpoint(kWeights).check(network));
  // Of three projections that are one product here, and of what it has no use for.
  const SafetensorsFile file(kWeights);
  std::vector<FileTensor> tensors;
  std::vector<std::vector<std::byte>> storage;
  for (const FileTensor& tensor : file.tensors()) {
    storage.push_back(file.read(tensor));
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, storage.back()});
    if (tensor.name.ends_with("0.attn1.to_k.weight")) tensors.back().name += ".odd";
  }
  const TemporaryFolder folder;
  write_safetensors(folder / "w.safetensors", tensors);
  try {
    Checkpoint(folder / "w.safetensors").check(network);
    FAIL() << "a wrong checkpoint was taken";
  } catch (const InvalidInput& error) {
    const std::string message = error.what();
    for (const char* part :
         {"8 of its tensors", "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_k.weight [16, 16] is missing",
          "mid_block.attentions.0.transformer_blocks.0.attn1.to_k.weight [32, 32] is missing",
          "attn1.to_k.weight.odd is not a tensor of small"})
      EXPECT_NE(message.find(part), std::string::npos) << part << " in\n" << message;
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
