// Embedded text and first noise: which image is told what.
#include "bench/pipeline/conditioning.h"

#include <gtest/gtest.h>

#include <numeric>

#include "networks/layers.h"
#include "tests/support/on_host.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

// Of 2 tokens, 3 wide; its output is its input.
NetworkInfo reader() {
  return {.name = "reader",
          .description = "of test code",
          .image = {2, 2, 1},
          .divisor = 1,
          .tokens = 2,
          .most_tokens = 2,
          .conditioning = {{"encoder_hidden_states", "prompt_embeds", "negative_prompt_embeds"}},
          .builder = [](const BuildOptions& options, Network& network) {
            ValueId x = network.take("x", NetworkTensor::Kind::image, {network.batch, 2, 2, 1}, DType::fp32);
            network.take("encoder_hidden_states", NetworkTensor::Kind::text, {network.calls, 2, 3}, options.dtype);
            if (options.guided) x = twice(network.graph, x);
            network.give("output", Layers(network.graph, network.calls, DType::fp32).upsample("up", {x, 2, 2, 1}).id,
                         {network.calls, 4, 4, 1});
          }};
}

// What the network is told of images [first, first + 2), by the first number of each text.
std::vector<float> told(std::int64_t prompts, std::int64_t negative, bool guided, std::int64_t first) {
  std::vector<float> some(static_cast<std::size_t>(6 * prompts)), none(static_cast<std::size_t>(6 * negative));
  std::iota(some.begin(), some.end(), 100.0f);
  std::iota(none.begin(), none.end(), 1.0f);
  std::vector<float> latents(12);
  std::iota(latents.begin(), latents.end(), 0.0f);
  const TemporaryFolder folder;
  const std::string path = folder / "text.safetensors";
  const FileTensor tensors[] = {
      {"prompt_embeds", "F32", {prompts, 2, 3}, std::as_bytes(std::span(some))},
      {"negative_prompt_embeds", "F32", {negative, 2, 3}, std::as_bytes(std::span(none))},
      {"latents", "F32", {3, 1, 2, 2}, std::as_bytes(std::span(latents))},
  };
  write_safetensors(path, tensors);
  const NetworkInfo info = reader();
  OnHost host(info, {.batch = 2, .dtype = DType::fp32, .guided = guided});
  const Network& network = host.network;
  Conditioning conditioning(path, info, guided);
  EXPECT_EQ(conditioning.sizes({}).tokens, 2);
  conditioning.read(network, 3);
  // The last batch is filled up with zeros.
  const std::vector<float> noise = conditioning.noise(network, 2);
  EXPECT_EQ(noise, (std::vector<float>{8, 9, 10, 11, 0, 0, 0, 0}));
  conditioning.set(host.platform, host.executor, first);
  const std::vector<float> text = host.held(network.require(NetworkTensor::Kind::text).value);
  std::vector<float> firsts;
  for (std::int64_t i = 0; i < network.calls; ++i) firsts.push_back(text[static_cast<std::size_t>(6 * i)]);
  return firsts;
}

TEST(Conditioning, PromptsTakeTurnsAndComeBehindWhatGuidanceLeadsAwayFrom) {
  EXPECT_EQ(told(1, 1, false, 0), (std::vector<float>{100, 100}));
  EXPECT_EQ(told(3, 1, false, 2), (std::vector<float>{112, 100}));
  EXPECT_EQ(told(3, 1, true, 2), (std::vector<float>{1, 1, 112, 100}));
  EXPECT_EQ(told(3, 3, true, 1), (std::vector<float>{7, 13, 106, 112}));
}

// A network that moves pictures: of each, latents for all of its frames, and numbers that both halves have.
NetworkInfo mover() {
  NetworkInfo info = reader();
  info.name = "mover";
  info.image = {2, 2, 1, 3};
  info.most_frames = 3;
  info.tokens = info.most_tokens = 0;
  info.conditioning = {{"numbers", "numbers", "numbers"}, {"latents_of", "pictures", ""}};
  info.builder = [](const BuildOptions& options, Network& network) {
    const auto& [height, width, channels, frames] = network.image;
    ValueId x = network.take("x", NetworkTensor::Kind::image, {network.batch, frames, height, width, 1}, DType::fp32);
    network.take("numbers", NetworkTensor::Kind::conditioning, {network.calls, 2}, DType::fp32);
    network.take("latents_of", NetworkTensor::Kind::image, {network.calls, frames, height, width, 1}, DType::fp32);
    if (options.guided) x = twice(network.graph, x);
    network.give("output",
                 Layers(network.graph, network.calls * frames, DType::fp32).upsample("up", {x, height, width, 1}).id,
                 {network.calls, frames, 2 * height, 2 * width, 1});
  };
  return info;
}

// Tensors that are wrong: tests/cli/test_sample.py.
TEST(Conditioning, PicturesAreForAllFramesAndTheHalfWithoutHasNone) {
  const TemporaryFolder folder;
  const std::string path = folder / "pictures.safetensors";
  const std::vector<float> numbers{5, 6}, pictures{1, 2, 3, 4, 11, 12, 13, 14};
  const auto write = [&](std::vector<std::int64_t> shape, const std::vector<float>& some) {
    write_safetensors(path,
                      std::vector<FileTensor>{{"numbers", "F32", {1, 2}, std::as_bytes(std::span(numbers))},
                                              {"pictures", "F32", std::move(shape), std::as_bytes(std::span(some))}});
  };
  const NetworkInfo info = mover();
  write({2, 1, 2, 2}, pictures);
  Conditioning one_for_all(path, info, true);
  EXPECT_EQ(one_for_all.sizes({}).height, 2);
  EXPECT_THROW((void)one_for_all.sizes({.height = 4}), InvalidInput);
  OnHost host(info, {.batch = 2, .dtype = DType::fp32, .guided = true});
  const Network& network = host.network;
  EXPECT_NO_THROW(one_for_all.read(network, 2));

  write({1, 1, 2, 2}, {pictures.begin(), pictures.begin() + 4});
  Conditioning conditioning(path, info, true);
  conditioning.read(network, 2);
  conditioning.set(host.platform, host.executor, 0);
  EXPECT_EQ(host.held(network.inputs.at(1).value), (std::vector<float>{5, 6, 5, 6, 5, 6, 5, 6}));
  std::vector<float> expected(2 * 3 * 4, 0.0f);
  for (int frame = 0; frame < 2 * 3; ++frame) expected.insert(expected.end(), {1, 2, 3, 4});
  EXPECT_EQ(host.held(network.inputs.at(2).value), expected);
}

}  // namespace
}  // namespace noisefloor::pipeline
