// Grids of pictures, PNG, and results that are no numbers.
#include "bench/pipeline/pictures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/refusal.h"

namespace noisefloor::pipeline {
namespace {

TEST(Pictures, GridPutsImagesRowByRow) {
  const std::vector<float> images{-1, -1, -1, -1, 1, 1, 1, 1, 0, 0, 0, NAN};  // three of 2x2
  const Picture picture = make_grid(images, {2, 2, 1}, 2, 1);
  EXPECT_EQ(picture.width, 5);
  EXPECT_EQ(picture.height, 5);
  const auto at = [&](std::int64_t y, std::int64_t x) {
    return picture.pixels[static_cast<std::size_t>(y * picture.width + x)];
  };
  EXPECT_EQ(at(0, 0), 0);
  EXPECT_EQ(at(0, 3), 255);
  EXPECT_EQ(at(3, 0), 128);
  EXPECT_EQ(at(4, 1), 0);  // not finite
  EXPECT_EQ(at(3, 3), 0);  // no image
}

TEST(Pictures, FramesAreFurtherPicturesOfAnyHeightAndWidth) {
  std::vector<float> video;  // one of two frames, 1 x 3, each pixel a shade of its own
  for (const int shade : {0, 1, 2, 3, 4, 5}) video.push_back(static_cast<float>(2 * shade) / 255 - 1);
  const Picture picture = make_grid(video, {1, 3, 1, 2}, 1, 1);
  EXPECT_EQ(picture.width, 3);
  EXPECT_EQ(picture.height, 3);
  EXPECT_EQ(picture.pixels, (std::vector<std::uint8_t>{0, 1, 2, 0, 0, 0, 3, 4, 5}));
}

TEST(Pictures, PngOfMoreThanAnIntCanCountIsRefused) {
  const Picture grid = grid_outline(13001, {8, 8, 1}, 1000, 64);
  EXPECT_EQ(grid.width, 1000 * 576 - 64);
  EXPECT_EQ(grid.height, 14 * 576 - 64);
  EXPECT_EQ(png_bytes(grid.width, grid.height, 1), (grid.width + 1) * grid.height);
  EXPECT_THROW((void)encode_png("grid.png", grid), std::runtime_error);  // before a pixel is read
}

TEST(Results, NumbersThatAreNotFiniteAreCounted) {
  const std::vector<float> good{1, -2, 3, 4, 5, 6};
  EXPECT_NO_THROW(require_finite(good, 2, 7));
  EXPECT_NO_THROW(require_finite({}, 2, 0));
  std::vector<float> bad = good;
  bad[2] = NAN;
  bad[3] = bad[5] = -std::numeric_limits<float>::infinity();
  expect_parts(refusal_of<std::runtime_error>([&] { require_finite(bad, 2, 7); }),
               {"3 of 6 elements of the result are not finite", "in 2 of 3 images, the first in image 8"});
}

TEST(Pictures, PngHasItsSignature) {
  const Picture picture = make_grid(std::vector<float>(4 * 3, 0.5f), {2, 2, 3}, 1, 2);
  EXPECT_TRUE(encode_png("grid.png", picture).starts_with("\x89PNG\r\n\x1a\n"));
}

}  // namespace
}  // namespace noisefloor::pipeline
