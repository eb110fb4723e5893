// Embedded text and first noise: which image is told what.
#include "bench/commands/conditioning.h"

#include <gtest/gtest.h>

#include <numeric>

#include "bench/sweep/suite.h"
#include "networks/layers.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

using namespace networks;

// Of 2 tokens, 3 wide; its output is its input.
NetworkInfo reader() {
  return {.name = "reader",
          .description = "of test code",
          .image = {2, 2, 1},
          .divisor = 1,
          .tokens = 2,
          .most_tokens = 2,
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
  const Network network = info.build({.batch = 2, .dtype = DType::fp32, .guided = guided});
  Conditioning conditioning(path, info, guided);
  EXPECT_EQ(conditioning.tokens(), 2);
  conditioning.read(network, 3);
  // The last batch is filled up with zeros.
  const std::vector<float> noise = conditioning.noise(network, 2);
  EXPECT_EQ(noise, (std::vector<float>{8, 9, 10, 11, 0, 0, 0, 0}));
  const auto platform = make_host_platform();
  const pipeline::Executor executor(*platform, network, pipeline::RandomWeights(),
                                    {*platform, suite(), count_problems(network.graph), {"naive"}});
  conditioning.set(*platform, executor, first);
  const auto* text = static_cast<const float*>(executor.data(network.require(NetworkTensor::Kind::text).value));
  std::vector<float> firsts;
  for (std::int64_t i = 0; i < network.calls; ++i) firsts.push_back(text[6 * i]);
  return firsts;
}

TEST(Conditioning, PromptsTakeTurnsAndComeBehindWhatGuidanceLeadsAwayFrom) {
  EXPECT_EQ(told(1, 1, false, 0), (std::vector<float>{100, 100}));
  EXPECT_EQ(told(3, 1, false, 2), (std::vector<float>{112, 100}));
  EXPECT_EQ(told(3, 1, true, 2), (std::vector<float>{1, 1, 112, 100}));
  EXPECT_EQ(told(3, 3, true, 1), (std::vector<float>{7, 13, 106, 112}));
}

}  // namespace
}  // namespace noisefloor
