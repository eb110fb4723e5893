// Tensors as pictures: grids of images in PNG files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
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

}  // namespace noisefloor::pipeline
