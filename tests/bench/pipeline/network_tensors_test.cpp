#include "bench/pipeline/network_tensors.h"

#include <gtest/gtest.h>

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
}

TEST(ImageLayout, ShapesFollow) {
  EXPECT_EQ(channels_first_shape({5, 8, 6, 3}), (std::vector<std::int64_t>{5, 3, 8, 6}));
  EXPECT_EQ(channels_first_shape({5, 7, 8, 6, 3}), (std::vector<std::int64_t>{5, 7, 3, 8, 6}));
}

}  // namespace
}  // namespace noisefloor::pipeline
