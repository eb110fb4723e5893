// The sizes of a call: options, what a file's tensors say, and where the two contradict each other.
#include <gtest/gtest.h>

#include "bench/commands/pipeline_common.h"
#include "bench/pipeline/network_tensors.h"

namespace noisefloor {
namespace {

using namespace pipeline;

using Kind = NetworkTensor::Kind;

// Of test code: videos from text.
NetworkInfo video() {
  return {.name = "video",
          .description = "of test code",
          .prediction = sampler_step::Prediction::v,
          .image = {6, 10, 4, 3},
          .divisor = 2,
          .most_frames = 25,
          .tokens = 5,
          .most_tokens = 77,
          .schedule = sampler_step::Schedule::scaled_linear,
          .builder = [](const BuildOptions& options, Network& network) {
            const auto& [height, width, channels, frames] = network.image;
            const std::int64_t n = network.batch;
            const ValueId x = network.take("x", Kind::image, {n, frames, height, width, channels}, DType::fp32);
            network.take("words", Kind::tokens, {n, options.sizes.tokens}, DType::int32, 100);
            network.give("output", x, {n, frames, height, width, channels});
          }};
}

FileTensor tensor(const char* name, std::vector<std::int64_t> shape) {
  return {name, "F32", std::move(shape), {}};
}

std::vector<std::int64_t> sizes(const NetworkInfo& info, const Sizes& asked, const std::vector<FileTensor>& tensors) {
  const Sizes all = sizes_of_inputs(info, asked, tensors, "in.safetensors");
  return {all.height, all.width, all.frames, all.tokens};
}

std::string refusal(const NetworkInfo& info, const Sizes& asked, const std::vector<FileTensor>& tensors) {
  try {
    (void)sizes(info, asked, tensors);
    return "";
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

using All = std::vector<std::int64_t>;

TEST(NetworkSizes, AreThoseOfTheTensors) {
  const NetworkInfo& digits = require_network("digits");
  EXPECT_EQ(sizes(digits, {}, {tensor("x", {2, 1, 6, 10}), tensor("sigma", {2})}), (All{6, 10, 0, 0}));
  EXPECT_EQ(sizes(digits, {.height = 6}, {tensor("x", {2, 1, 6, 10})}), (All{6, 10, 0, 0}));
  EXPECT_EQ(sizes(video(), {}, {tensor("words", {2, 9}), tensor("x", {2, 7, 4, 12, 14})}), (All{12, 14, 7, 9}));
}

TEST(NetworkSizes, AreThoseOfEmbeddedText) {
  EXPECT_EQ(sizes(require_network("sd15"), {}, {tensor("encoder_hidden_states", {2, 9, 768})}), (All{0, 0, 0, 9}));
}

TEST(NetworkSizes, AreThoseAskedForWhereNoTensorSays) {
  EXPECT_EQ(sizes(video(), {.height = 4, .tokens = 11}, {}), (All{4, 0, 0, 11}));
  // Who reads such a tensor says what it should be.
  EXPECT_EQ(sizes(require_network("digits"), {.width = 4}, {tensor("x", {6, 10})}), (All{0, 4, 0, 0}));
}

TEST(NetworkSizes, ThatContradictATensorAreRefused) {
  const auto x = tensor("x", {2, 1, 8, 10});
  EXPECT_EQ(refusal(require_network("digits"), {.height = 8, .width = 8}, {x}),
            "in.safetensors: tensor x is [2, 1, 8, 10], of width 10, which contradicts --width 8");
  EXPECT_EQ(refusal(video(), {.frames = 3}, {tensor("x", {1, 2, 4, 6, 10})}),
            "in.safetensors: tensor x is [1, 2, 4, 6, 10], of frames 2, which contradicts --frames 3");
  EXPECT_EQ(refusal(video(), {.tokens = 5}, {tensor("words", {1, 6})}),
            "in.safetensors: tensor words is [1, 6], of tokens 6, which contradicts --tokens 5");
}

TEST(NetworkSizes, ThatTheNetworkDoesNotTakeAreRefusedWithTheirTensor) {
  EXPECT_EQ(
      refusal(require_network("adm64"), {}, {tensor("x", {1, 3, 64, 60})}),
      "in.safetensors: tensor x is [1, 3, 64, 60]: width 60: adm64 takes multiples of 8; the nearest are 56 and 64");
  EXPECT_EQ(refusal(require_network("digits"), {}, {tensor("x", {1, 1, 0, 8})}),
            "in.safetensors: tensor x is [1, 1, 0, 8]: height 0 is out of range (1 to 65536)");
  EXPECT_EQ(refusal(require_network("digits"), {.frames = 2}, {tensor("x", {1, 1, 8, 8})}),
            "frames 2: digits makes single images; networks with frames: moving-digits, svd, svd-vae");
  EXPECT_EQ(refusal(video(), {}, {tensor("words", {1, 78})}),
            "in.safetensors: tensor words is [1, 78]: tokens 78: video takes 1 to 77");
}

TEST(ImagesInWords, AreCountedAndVideosAreNone) {
  EXPECT_EQ(images_in_words(1, false), "1 image");
  EXPECT_EQ(images_in_words(20, false), "20 images");
  EXPECT_EQ(images_in_words(1, true), "1 video");
  EXPECT_EQ(images_in_words(2, true), "2 videos");
}

}  // namespace
}  // namespace noisefloor
