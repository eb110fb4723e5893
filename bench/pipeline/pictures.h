// Tensors as pictures: grids of images in PNG files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace noisefloor::pipeline {

struct Picture {
  std::int64_t width = 0, height = 0, channels = 1;  // 1 grey, 3 RGB
  std::vector<std::uint8_t> pixels;                  // [height, width, channels]
};

// `images` [n, size, size, channels], -1 black and 1 white, row by row into `columns` columns, every pixel `zoom` x
// `zoom`, with a margin of one zoomed pixel between images. Values that are not finite become black.
Picture make_grid(std::span<const float> images, std::int64_t size, std::int64_t channels, std::int64_t columns,
                  std::int64_t zoom);

// Writes beside and renames. Throws std::runtime_error with the file's name.
void write_png(const std::filesystem::path& file, const Picture& picture);

}  // namespace noisefloor::pipeline
