// Tensors of files: their layout, and the sizes of a call, where options and tensors may contradict each other.
#include "bench/pipeline/network_tensors.h"

#include <gtest/gtest.h>

#include "tests/support/recorded_tensors.h"
#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

TEST(ImageLayout, ChannelsComeFirstInFiles) {
  // Two images of 2 x 2 pixels and 3 channels: hundreds say the image, tens the pixel, ones the channel.
  const std::vector<float> last = {0,   1,   2,   10,  11,  12,  20,  21,  22,  30,  31,  32,
                                   100, 101, 102, 110, 111, 112, 120, 121, 122, 130, 131, 132};
  const std::vector<float> first = {0,   10,  20,  30,  1,   11,  21,  31,  2,   12,  22,  32,
                                    100, 110, 120, 130, 101, 111, 121, 131, 102, 112, 122, 132};
  const ImageShape image{2, 2, 3};
  EXPECT_EQ(to_channels_first(last, image), first);
  EXPECT_EQ(to_channels_last(first, image), last);
  // Two frames of a video lie as two images do.
  EXPECT_EQ(to_channels_first(last, ImageShape{2, 2, 3, 2}), first);
  EXPECT_EQ(channels_first_shape({5, 8, 6, 3}), (std::vector<std::int64_t>{5, 3, 8, 6}));
  EXPECT_EQ(channels_first_shape({5, 7, 8, 6, 3}), (std::vector<std::int64_t>{5, 7, 3, 8, 6}));
}

// A video has frames where there is one, too: its decoder takes no other.
TEST(NetworkTensors, AreWrittenAsForwardTakesThem) {
  const TemporaryFolder folder;
  const std::vector<float> numbers{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32};  // two images of 1 x 2 pixels
  const ImageTensor tensors[] = {{"x", {1, 2, 3}, numbers, false}, {"video", {1, 2, 3}, numbers, true}};
  write_image_tensors(folder / "images.safetensors", "digits", tensors, std::vector<std::int64_t>{4, 5});
  const SafetensorsFile file(folder / "images.safetensors");
  EXPECT_NO_THROW(file.require_layout(kChannelsFirst));
  EXPECT_EQ(recorded_numbers(file, "x"), (std::vector<float>{0, 10, 1, 11, 2, 12, 20, 30, 21, 31, 22, 32}));
  EXPECT_EQ(file.find("x")->shape, (std::vector<std::int64_t>{2, 3, 1, 2}));
  EXPECT_EQ(file.find("video")->shape, (std::vector<std::int64_t>{2, 1, 3, 1, 2}));
  EXPECT_EQ(file.find("labels")->shape, (std::vector<std::int64_t>{2}));
}

FileTensor tensor(const char* name, std::vector<std::int64_t> shape) {
  return {name, "F32", std::move(shape), {}};
}

std::vector<std::int64_t> sizes(const NetworkInfo& info, const Sizes& asked, const std::vector<FileTensor>& tensors) {
  const auto tensor_of = [&](std::string_view input) {
    const auto found = std::ranges::find(tensors, input, &FileTensor::name);
    return found == tensors.end() ? nullptr : &*found;
  };
  const Sizes all = sizes_of_inputs(info, asked, tensor_of, "in.safetensors");
  return {all.height, all.width, all.frames, all.tokens};
}

std::string refusal(const NetworkInfo& info, const Sizes& asked, const std::vector<FileTensor>& tensors) {
  return refusal_of([&] { return sizes(info, asked, tensors); });
}

using All = std::vector<std::int64_t>;

TEST(NetworkSizes, AreThoseOfTheTensors) {
  const NetworkInfo& digits = require_network("digits");
  EXPECT_EQ(sizes(digits, {}, {tensor("x", {2, 1, 6, 10}), tensor("sigma", {2})}), (All{6, 10, 0, 0}));
  EXPECT_EQ(sizes(digits, {.height = 6}, {tensor("x", {2, 1, 6, 10})}), (All{6, 10, 0, 0}));
  EXPECT_EQ(sizes(video(), {}, {tensor("words", {2, 9, 8}), tensor("x", {2, 7, 4, 12, 14})}), (All{12, 14, 7, 9}));
  EXPECT_EQ(sizes(require_network("sd15"), {}, {tensor("encoder_hidden_states", {2, 9, 768})}), (All{0, 0, 0, 9}));
  // Those asked for where no tensor says.
  EXPECT_EQ(sizes(video(), {.height = 4, .tokens = 11}, {}), (All{4, 0, 0, 11}));
  // Who reads such a tensor says what it should be.
  EXPECT_EQ(sizes(require_network("digits"), {.width = 4}, {tensor("x", {6, 10})}), (All{0, 4, 0, 0}));
}

TEST(NetworkSizes, ThatContradictATensorAreRefused) {
  const auto x = tensor("x", {2, 1, 8, 10});
  EXPECT_EQ(refusal(require_network("digits"), {.height = 8, .width = 8}, {x}),
            "in.safetensors: tensor x is [2, 1, 8, 10], of width 10, which contradicts --size width=8");
  EXPECT_EQ(refusal(video(), {.frames = 3}, {tensor("x", {1, 2, 4, 6, 10})}),
            "in.safetensors: tensor x is [1, 2, 4, 6, 10], of frames 2, which contradicts --size frames=3");
  EXPECT_EQ(refusal(video(), {.tokens = 5}, {tensor("words", {1, 6, 8})}),
            "in.safetensors: tensor words is [1, 6, 8], of tokens 6, which contradicts --size tokens=5");
}

TEST(NetworkSizes, ThatTheNetworkDoesNotTakeAreRefusedWithTheirTensor) {
  EXPECT_EQ(
      refusal(require_network("adm64"), {}, {tensor("x", {1, 3, 64, 60})}),
      "in.safetensors: tensor x is [1, 3, 64, 60]: width 60: adm64 takes multiples of 8; the nearest are 56 and 64");
  EXPECT_EQ(refusal(require_network("digits"), {}, {tensor("x", {1, 1, 0, 8})}),
            "in.safetensors: tensor x is [1, 1, 0, 8]: height 0 is out of range (1 to 65536)");
  EXPECT_EQ(refusal(video(), {}, {tensor("words", {1, 78, 8})}),
            "in.safetensors: tensor words is [1, 78, 8]: tokens 78: video takes 1 to 77");
}

}  // namespace
}  // namespace noisefloor::pipeline
