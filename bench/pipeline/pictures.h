// Tensors as pictures: grids of images in PNG files, and one after the other in an animated GIF or PNG.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

struct Picture {
  std::int64_t width = 0, height = 0, channels = 1;  // 1 grey, 3 RGB
  std::vector<std::uint8_t> pixels;                  // [height, width, channels]
};

// The file's bytes before compression; stb counts them, and more, in an int.
inline constexpr std::int64_t kMostPngBytes = std::int64_t{1} << 29;
std::int64_t png_bytes(std::int64_t width, std::int64_t height, std::int64_t channels);

// What make_grid makes of `count` images; pixels stay empty.
Picture grid_outline(std::int64_t count, const ImageShape& image, std::int64_t columns, std::int64_t zoom);

// `images` [n, frames, height, width, channels], each frame a picture: -1 black and 1 white, row by row into `columns`
// columns, every pixel `zoom` x `zoom`, with a margin of one zoomed pixel between images. Values that are not finite
// become black.
Picture make_grid(std::span<const float> images, const ImageShape& image, std::int64_t columns, std::int64_t zoom);

// The bytes of a PNG file, which `file` is to be: its name is in what is thrown (std::runtime_error), also above
// kMostPngBytes.
std::string encode_png(const std::filesystem::path& file, const Picture& picture);

// Throws std::runtime_error, with the name of the file that they are to be, where there is none, or of several sizes.
void require_animation(const std::filesystem::path& file, std::span<const Picture> frames);

inline constexpr std::int64_t kMostGifPixels = 65535;  // a side: GIF has 16 bits for it

// A picture in the colours of a GIF: one byte a pixel. Greys stand for themselves. RGB goes to the nearest of a cube of
// 6 x 7 x 6 colours (the eye is best at green), after a threshold of an 8 x 8 Bayer matrix, up to half a step of the
// cube, has been added: areas keep their mean colour. Unlike diffused errors it depends on nothing but the pixel and
// its place, so that what stands still does not flicker, and black and white stay free of specks.
std::vector<std::uint8_t> gif_indices(const Picture& picture);

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
};
std::vector<Colour> gif_palette(std::int64_t channels);  // 256 entries

// The bytes of a GIF file: frames of one size, each shown for `delay` hundredths of a second and the last for
// `last_delay`, for ever again. Throws std::runtime_error with the name of the file that it is to be.
std::string encode_gif(const std::filesystem::path& file, std::span<const Picture> frames, int delay, int last_delay);

inline constexpr int kFramesPerSecond = 7;  // what Stable Video Diffusion is told by default
// Frames of one size, `fps` in a second, for ever again, as an animated PNG: whoever knows none sees the first frame.
// Source: PNG Specification (third edition, 2025), 11.3.6. Throws as encode_gif does.
std::string encode_animated_png(const std::filesystem::path& file, std::span<const Picture> frames, int fps);

// Throws InvalidInput where --out is named as another kind of file than `what`, a PNG.
void require_png_name(const std::string& out, const char* what);

struct NotFinite : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Numbers that are not finite are never results: throws NotFinite where one of `numbers`, of `per_image` an
// image and images counted from `first_image`, is not: how many are, in which images.
void require_finite(std::span<const float> numbers, std::int64_t per_image, std::int64_t first_image);

// How far pictures are from others that they stand for: |found - expected| / |expected|, both of one length.
double relative_l2(std::span<const float> found, std::span<const float> expected);

}  // namespace noisefloor::pipeline
