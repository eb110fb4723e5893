// Pictures: animated GIFs, decoded again by giflib; PNG; grids; and results that are no numbers.
#include "bench/pipeline/pictures.h"

#include <gif_lib.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "reports/run/files.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

struct Close {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};

std::unique_ptr<GifFileType, Close> decoded(const std::filesystem::path& file) {
  std::unique_ptr<GifFileType, Close> gif(DGifOpenFileName(file.c_str(), nullptr));
  if (gif && DGifSlurp(gif.get()) == GIF_ERROR) gif.reset();
  return gif;
}

Picture filled(std::int64_t width, std::int64_t height, const std::vector<std::uint8_t>& colour) {
  Picture picture{width, height, static_cast<std::int64_t>(colour.size()), {}};
  for (std::int64_t i = 0; i < width * height; ++i)
    picture.pixels.insert(picture.pixels.end(), colour.begin(), colour.end());
  return picture;
}

TEST(Animation, IsDecodedAgainFrameByFrame) {
  const TemporaryFolder folder;
  std::vector<Picture> frames;
  for (int frame = 0; frame < 3; ++frame) {
    Picture picture{37, 5, 1, {}};
    for (int i = 0; i < 37 * 5; ++i) picture.pixels.push_back(static_cast<std::uint8_t>((i * 7 + frame * 50) % 256));
    frames.push_back(picture);
  }
  write_atomically(folder.path() / "way.gif", encode_gif("way.gif", frames, 8, 150));
  const auto gif = decoded(folder.path() / "way.gif");
  ASSERT_TRUE(gif);
  EXPECT_EQ(gif->SWidth, 37);
  EXPECT_EQ(gif->SHeight, 5);
  ASSERT_EQ(gif->ImageCount, 3);
  for (int frame = 0; frame < 3; ++frame) {
    GraphicsControlBlock control;
    ASSERT_EQ(DGifSavedExtensionToGCB(gif.get(), frame, &control), GIF_OK);
    EXPECT_EQ(control.DelayTime, frame == 2 ? 150 : 8);
    EXPECT_EQ(control.TransparentColor, NO_TRANSPARENT_COLOR);
    const GifByteType* pixels = gif->SavedImages[frame].RasterBits;
    for (std::size_t i = 0; i < frames[0].pixels.size(); ++i) {
      const GifColorType& colour = gif->SColorMap->Colors[pixels[i]];
      ASSERT_EQ(colour.Red, frames[static_cast<std::size_t>(frame)].pixels[i]);
      ASSERT_EQ(colour.Red, colour.Blue);
    }
  }
  // It repeats: Netscape's extension, and 0 times, which is for ever.
  const SavedImage& first = gif->SavedImages[0];
  ASSERT_GE(first.ExtensionBlockCount, 2);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.ExtensionBlocks[0].Bytes), 11), "NETSCAPE2.0");
  EXPECT_EQ(first.ExtensionBlocks[1].Bytes[1] + 256 * first.ExtensionBlocks[1].Bytes[2], 0);
}

RC_GTEST_PROP(Animation, AreasKeepTheirColour, ()) {
  const std::vector<std::uint8_t> colour{*rc::gen::arbitrary<std::uint8_t>(), *rc::gen::arbitrary<std::uint8_t>(),
                                         *rc::gen::arbitrary<std::uint8_t>()};
  const auto indices = gif_indices(filled(8, 8, colour));
  const auto palette = gif_palette(3);
  std::array<double, 3> sum{};
  for (const std::uint8_t index : indices) {
    RC_ASSERT(index < 6 * 7 * 6);
    sum[0] += palette[index].red;
    sum[1] += palette[index].green;
    sum[2] += palette[index].blue;
  }
  // 64 thresholds cut a step of 51 into parts below 1; entries of the palette are rounded by up to half.
  for (std::size_t c = 0; c < 3; ++c) RC_ASSERT(std::fabs(sum[c] / 64 - colour[c]) <= 1);
}

TEST(Animation, BlackAndWhiteStayFreeOfSpecks) {
  const auto palette = gif_palette(3);
  for (const std::uint8_t shade : {0, 255})
    for (const std::uint8_t index : gif_indices(filled(16, 16, {shade, shade, shade}))) {
      EXPECT_EQ(palette[index].red, shade);
      EXPECT_EQ(palette[index].green, shade);
      EXPECT_EQ(palette[index].blue, shade);
    }
}

TEST(Animation, ColoursAreDecodedAgain) {
  const TemporaryFolder folder;
  const Picture red = filled(9, 4, {255, 0, 0});
  write_atomically(folder.path() / "red.gif", encode_gif("red.gif", std::vector<Picture>{red}, 8, 8));
  const auto gif = decoded(folder.path() / "red.gif");
  ASSERT_TRUE(gif);
  ASSERT_EQ(gif->ImageCount, 1);
  for (int i = 0; i < 9 * 4; ++i) {
    const GifColorType& colour = gif->SColorMap->Colors[gif->SavedImages[0].RasterBits[i]];
    EXPECT_EQ(colour.Red, 255);
    EXPECT_EQ(colour.Green, 0);
    EXPECT_EQ(colour.Blue, 0);
  }
}

// Chunks of a PNG in their order, as type and data; of a chunk that does not fit, or whose checksum is wrong, nothing.
std::vector<std::pair<std::string, std::string>> chunks_of(const std::string& png) {
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png.at(at + i));
    return value;
  };
  std::vector<std::pair<std::string, std::string>> chunks;
  for (std::size_t at = 8; at + 12 <= png.size(); at += 12 + number(at)) {
    std::uint32_t crc = 0xFFFFFFFFu;
    for (std::size_t i = at + 4; i < at + 8 + number(at); ++i) {
      crc ^= static_cast<unsigned char>(png.at(i));
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
    }
    if (~crc != number(at + 8 + number(at))) return {};
    chunks.emplace_back(png.substr(at + 4, 4), png.substr(at + 8, number(at)));
  }
  return chunks;
}

// Each frame's pixels are those of a PNG of it.
TEST(Animation, OfPngIsOnePngAFrame) {
  const std::filesystem::path file = "way.png";
  const std::vector<Picture> frames{filled(5, 3, {1, 2, 3}), filled(5, 3, {200, 0, 9}), filled(5, 3, {7, 7, 7})};
  const std::string bytes = encode_animated_png(file, frames, 7);
  EXPECT_EQ(bytes.substr(0, 8), "\x89PNG\r\n\x1a\n");
  const auto chunks = chunks_of(bytes);
  std::string types;
  for (const auto& [type, data] : chunks) types += type + " ";
  ASSERT_EQ(types, "IHDR acTL fcTL IDAT fcTL fdAT fcTL fdAT IEND ");
  EXPECT_EQ(chunks[1].second, std::string("\0\0\0\3\0\0\0\0", 8));  // three frames, for ever
  for (std::size_t frame = 0; frame < 3; ++frame) {
    const std::string sequence = frame == 0 ? "" : std::string("\0\0\0", 3) + static_cast<char>(2 * frame);
    const auto alone = chunks_of(encode_png(file, frames[frame]));
    EXPECT_EQ(chunks[3 + 2 * frame].second, sequence + alone.at(1).second);
    const std::string number(1, static_cast<char>(frame == 0 ? 0 : 2 * frame - 1));
    EXPECT_EQ(chunks[2 + 2 * frame].second,
              std::string("\0\0\0", 3) + number + std::string("\0\0\0\5\0\0\0\3\0\0\0\0\0\0\0\0\0\1\0\7\0\0", 22));
  }
  EXPECT_EQ(chunks[0].second, chunks_of(encode_png(file, frames[0])).at(0).second);
  EXPECT_THROW((void)encode_animated_png(file, {}, 7), std::runtime_error);
  const std::vector<Picture> two_sizes{frames[0], filled(2, 2, {1, 1, 1})};
  EXPECT_THROW((void)encode_animated_png(file, two_sizes, 7), std::runtime_error);
}

TEST(Animation, OfFramesThatMakeNoneIsRefused) {
  const Picture small = filled(2, 2, {7}), large = filled(3, 2, {7}), wide = filled(65536, 1, {7});
  const std::vector<std::vector<Picture>> wrong{{}, {small, large}, {wide}};
  for (const auto& frames : wrong) EXPECT_THROW((void)encode_gif("way.gif", frames, 8, 8), std::runtime_error);
}

// ---- grids, and results that are no numbers

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

}  // namespace
}  // namespace noisefloor::pipeline
