#include "bench/pipeline/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace noisefloor::pipeline {
namespace {

std::uint8_t shade(float value) {
  if (!std::isfinite(value)) return 0;
  return static_cast<std::uint8_t>(std::lround((std::clamp(value, -1.0f, 1.0f) + 1) * 127.5f));
}

}  // namespace

std::int64_t png_bytes(std::int64_t width, std::int64_t height, std::int64_t channels) {
  return (width * channels + 1) * height;  // a byte before each row says how it is filtered
}

Picture grid_outline(std::int64_t count, const ImageShape& image, std::int64_t columns, std::int64_t zoom) {
  const std::int64_t rows = (count * image.frames + columns - 1) / columns;
  return {columns * (image.width + 1) * zoom - zoom, rows * (image.height + 1) * zoom - zoom, image.channels, {}};
}

Picture make_grid(std::span<const float> images, const ImageShape& image, std::int64_t columns, std::int64_t zoom) {
  const auto& [height, width, channels, frames] = image;
  Picture picture = grid_outline(static_cast<std::int64_t>(images.size()) / image.elements(), image, columns, zoom);
  picture.pixels.assign(static_cast<std::size_t>(picture.width * picture.height * channels), 0);
  const auto count = static_cast<std::int64_t>(images.size()) / (image.pixels() * channels);
  for (std::int64_t one = 0; one < count; ++one) {
    const std::int64_t top = one / columns * (height + 1) * zoom, left = one % columns * (width + 1) * zoom;
    for (std::int64_t y = 0; y < height * zoom; ++y) {
      for (std::int64_t x = 0; x < width * zoom; ++x) {
        const std::int64_t from = ((one * height + y / zoom) * width + x / zoom) * channels;
        const std::int64_t to = ((top + y) * picture.width + left + x) * channels;
        for (std::int64_t c = 0; c < channels; ++c)
          picture.pixels[static_cast<std::size_t>(to + c)] = shade(images[static_cast<std::size_t>(from + c)]);
      }
    }
  }
  return picture;
}

std::string encode_png(const std::filesystem::path& file, const Picture& picture) {
  if (const std::int64_t size = png_bytes(picture.width, picture.height, picture.channels); size > kMostPngBytes)
    throw std::runtime_error(fmt::format("{}: {} x {} pixels are {} bytes, more than {}", file.string(), picture.width,
                                         picture.height, size, kMostPngBytes));
  std::string bytes;
  const auto append = [](void* context, void* data, int size) {
    static_cast<std::string*>(context)->append(static_cast<const char*>(data), static_cast<std::size_t>(size));
  };
  const int made = stbi_write_png_to_func(append, &bytes, static_cast<int>(picture.width),
                                          static_cast<int>(picture.height), static_cast<int>(picture.channels),
                                          picture.pixels.data(), static_cast<int>(picture.width * picture.channels));
  if (made == 0) throw std::runtime_error(file.string() + ": the picture could not be encoded");
  return bytes;
}

void require_finite(std::span<const float> numbers, std::int64_t per_image, std::int64_t first_image) {
  std::int64_t wrong = 0, images = 0, first = -1, last = -1;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (std::isfinite(numbers[i])) continue;
    const std::int64_t image = static_cast<std::int64_t>(i) / per_image;
    if (image != last) ++images;
    if (first < 0) first = image;
    last = image;
    ++wrong;
  }
  if (wrong == 0) return;
  throw std::runtime_error(fmt::format(
      "{} of {} elements of the result are not finite (NaN or infinite), in {} of {} images, the first in "
      "image {}; nothing is written. A wider --dtype, other weights or other noise levels may help",
      wrong, numbers.size(), images, static_cast<std::int64_t>(numbers.size()) / per_image, first_image + first));
}

double relative_l2(std::span<const float> found, std::span<const float> expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{found[i]} - double{expected[i]}, 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace noisefloor::pipeline
