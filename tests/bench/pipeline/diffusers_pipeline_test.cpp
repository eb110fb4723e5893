// The decoder of latents, and a whole picture of Stable Diffusion (sampling loop, guidance, decoder), held to
// diffusers' own at a reduced width. diffusers_pipeline.py wrote the files.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/sampling.h"
#include "bench/sweep/suite.h"
#include "networks/unet.h"
#include "networks/vae.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

const std::filesystem::path kDecoder = "tests/bench/pipeline/small_vae.safetensors";

// As SMALL_VAE of the script.
NetworkInfo small_decoder(std::int64_t height, std::int64_t width) {
  NetworkInfo info = require_network("sd-vae");
  info.name = "small";
  info.image = {height, width, 4};
  info.enlarges = 4;
  info.builder = [](const BuildOptions& options, Network& network) {
    build_decoder({.channels = {8, 16, 16}, .latent_scale = 0.18215, .blocks = 2, .groups = 4}, options, network);
  };
  return info;
}

// As SMALL of diffusers_unet.py.
NetworkInfo small_unet() {
  NetworkInfo info = require_network("sd15");
  info.name = "small";
  info.image = {8, 12, 4};
  info.tokens = 5;
  info.builder = [](const BuildOptions& options, Network& network) {
    const UNet unet{.levels = {{16, 2, 1}, {32, 2, 0}}, .blocks = 1, .text_width = 24, .groups = 8};
    build_unet(unet, options, network);
  };
  return info;
}

const SafetensorsFile& recorded_pipeline() {
  static const SafetensorsFile file("tests/bench/pipeline/small_pipeline.safetensors");
  return file;
}

// A network on the host, in naive variants.
struct OnHost {
  OnHost(NetworkInfo row, const BuildOptions& options, const std::filesystem::path& weights)
      : info(std::move(row)),
        network(info.build(options)),
        executor(*platform, network, Checkpoint(weights),
                 {*platform, suite(), count_problems(network.graph), {"naive"}}) {}

  void set(const NetworkTensor& input, const std::vector<float>& numbers) {
    const Value& value = network.graph[input.value];
    ASSERT_EQ(static_cast<std::int64_t>(numbers.size()), value.elements());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      store_element(value.dtype, executor.data(input.value), static_cast<std::int64_t>(i), numbers[i]);
  }
  std::vector<float> output() const {
    const auto* found = static_cast<const float*>(executor.data(network.output()));
    return {found, found + network.graph[network.output()].elements()};
  }

  std::unique_ptr<Platform> platform = make_host_platform();
  NetworkInfo info;
  Network network;
  Executor executor;
};

// Of pictures of latents of two images.
std::vector<float> decoded(const std::vector<float>& latents, std::int64_t height, std::int64_t width, DType dtype,
                           bool old_names = false, const std::filesystem::path& weights = kDecoder) {
  OnHost decoder(small_decoder(height, width), {.batch = 2, .dtype = dtype, .old_names = old_names}, weights);
  decoder.set(decoder.network.inputs.front(), latents);
  throw_if_failed(decoder.executor.enqueue());
  return decoder.output();
}

TEST(DiffusersPipeline, TheDecoderIsWhatItComputes) {
  const std::vector<float> expected = channels_last_of(recorded_numbers(recorded_pipeline(), "output"), 3, 16 * 5 * 7);
  for (const auto& [dtype, limit] : {std::pair{DType::fp32, 1e-5}, std::pair{DType::bf16, 1e-2}}) {
    const double error = distance(
        decoded(channels_last_of(recorded_numbers(recorded_pipeline(), "x"), 4, 5 * 7), 5, 7, dtype), expected);
    EXPECT_LE(error, limit) << to_string(dtype);
    RecordProperty(to_string(dtype), std::to_string(1e6 * error) + "e-6");
  }
}

// Files from before diffusers 0.15 name the attention's modules otherwise.
TEST(DiffusersPipeline, ADecoderOfOldNamesIsTheSame) {
  const SafetensorsFile file(kDecoder);
  std::vector<FileTensor> tensors;
  std::vector<std::vector<std::byte>> storage;
  for (const FileTensor& tensor : file.tensors()) {
    storage.push_back(file.read(tensor));
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, storage.back()});
    std::string& name = tensors.back().name;
    for (const auto& [now, before] : {std::pair{".to_q.", ".query."}, std::pair{".to_k.", ".key."},
                                      std::pair{".to_v.", ".value."}, std::pair{".to_out.0.", ".proj_attn."}})
      if (const std::size_t at = name.find(now); at != std::string::npos)
        name.replace(at, std::string_view(now).size(), before);
  }
  const TemporaryFolder folder;
  write_safetensors(folder / "old.safetensors", tensors);
  EXPECT_TRUE(Checkpoint(folder / "old.safetensors").has(require_network("sd-vae").old_weight));
  EXPECT_FALSE(Checkpoint(kDecoder).has(require_network("sd-vae").old_weight));
  const std::vector<float> x = channels_last_of(recorded_numbers(recorded_pipeline(), "x"), 4, 5 * 7);
  EXPECT_EQ(decoded(x, 5, 7, DType::fp32, true, folder / "old.safetensors"), decoded(x, 5, 7, DType::fp32));
  const NetworkInfo info = small_decoder(5, 7);
  const Network network = info.build({});
  EXPECT_THROW(Checkpoint(folder / "old.safetensors").check(network), InvalidInput);
}

// The encoder of a checkpoint is let pass; another tensor is not.
TEST(DiffusersPipeline, AStrayTensorOfADecoderIsNamed) {
  const NetworkInfo& info = require_network("sd-vae");
  for (const char* name : {"encoder.conv_in.weight", "quant_conv.bias"}) EXPECT_TRUE(info.lets_pass(name)) << name;
  for (const char* name : {"decoder.conv_in.odd", "post_quant_conv.odd", "my_encoder.conv_in.weight"})
    EXPECT_FALSE(info.lets_pass(name)) << name;
}

// Guided, from the same noise, 20 steps of PNDM as Stable Diffusion's checkpoints configure it.
TEST(DiffusersPipeline, APictureIsWhatItDraws) {
  OnHost unet(small_unet(), {.batch = 2, .dtype = DType::fp32, .sampling = true, .guided = true},
              "tests/bench/pipeline/small_unet.safetensors");
  std::vector<float> text = recorded_numbers(recorded_pipeline(), "negative_prompt_embeds");
  const std::vector<float> prompts = recorded_numbers(recorded_pipeline(), "prompt_embeds");
  text.insert(text.end(), prompts.begin(), prompts.end());
  unet.set(unet.network.require(NetworkTensor::Kind::text), text);
  Sampler sampler(*unet.platform, unet.executor,
                  {.solver = sampler_step::Solver::pndm,
                   .schedule = sampler_step::Schedule::scaled_linear,
                   .steps = 20,
                   .spacing = sampler_step::Spacing::leading,
                   .offset = 1,
                   .ends_noisy = true,
                   .guidance = 7.5});
  const std::vector<float> noise = channels_last_of(recorded_numbers(recorded_pipeline(), "latents"), 4, 8 * 12);
  sampler.begin_from(noise);
  const std::vector<float> latents = sampler.run({}, 0);
  EXPECT_EQ(sampler.initial_noise(), noise);
  const double error =
      distance(latents, channels_last_of(recorded_numbers(recorded_pipeline(), "final_latents"), 4, 8 * 12));
  EXPECT_LE(error, 1e-3);
  const double of_picture = distance(decoded(latents, 8, 12, DType::fp32),
                                     channels_last_of(recorded_numbers(recorded_pipeline(), "images"), 3, 16 * 8 * 12));
  EXPECT_LE(of_picture, 1e-3);
  RecordProperty("latents", std::to_string(1e6 * error) + "e-6");
  RecordProperty("picture", std::to_string(1e6 * of_picture) + "e-6");
}

}  // namespace
}  // namespace noisefloor::pipeline
