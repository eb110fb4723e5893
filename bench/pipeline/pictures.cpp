#include "bench/pipeline/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "kernels/core/fields.h"

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

// ---- an animated PNG is a PNG whose frames behind the first stand in chunks of their own: the pixels of a PNG of each

constexpr std::size_t kSignature = 8, kChunkHead = 8, kCrc = 4;
constexpr std::size_t kHeaderChunk = kChunkHead + 13 + kCrc;  // IHDR, the first

std::string big_endian(std::int64_t value, int bytes = 4) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 255);
  return text;
}

std::string chunk(const char* type, const std::string& data) {
  std::string body = type + data;
  const unsigned crc = stbiw__crc32(reinterpret_cast<unsigned char*>(body.data()), static_cast<int>(body.size()));
  return big_endian(std::ssize(data)) + body + big_endian(crc);
}

// Of all of a PNG's chunks IDAT, one behind the other.
std::string pixel_data(std::string_view png) {
  std::string data;
  for (std::size_t at = kSignature; at + kChunkHead + kCrc <= png.size();) {
    std::size_t size = 0;
    for (const char byte : png.substr(at, 4)) size = size << 8 | static_cast<unsigned char>(byte);
    if (png.substr(at + 4, 4) == "IDAT") data += png.substr(at + kChunkHead, size);
    at += kChunkHead + size + kCrc;
  }
  return data;
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

void require_animation(const std::filesystem::path& file, std::span<const Picture> frames) {
  const char* wrong = frames.empty() ? "no frame" : nullptr;
  for (const Picture& frame : frames)
    if (frame.width != frames[0].width || frame.height != frames[0].height || frame.channels != frames[0].channels)
      wrong = "frames of more than one size";
  if (wrong != nullptr)
    throw std::runtime_error(fmt::format("{}: the animation could not be encoded: {}", file.string(), wrong));
}

std::string encode_animated_png(const std::filesystem::path& file, std::span<const Picture> frames, int fps) {
  require_animation(file, frames);
  std::string bytes;
  int sequence = 0;
  for (const Picture& frame : frames) {
    const std::string png = encode_png(file, frame);
    const bool first = bytes.empty();
    if (first)
      bytes = png.substr(0, kSignature + kHeaderChunk) + chunk("acTL", big_endian(std::ssize(frames)) + big_endian(0));
    // The whole picture, 1 / fps seconds; nothing is disposed of or blended.
    bytes += chunk("fcTL", big_endian(sequence++) + big_endian(frame.width) + big_endian(frame.height) + big_endian(0) +
                               big_endian(0) + big_endian(1, 2) + big_endian(fps, 2) + big_endian(0, 2));
    bytes += first ? chunk("IDAT", pixel_data(png)) : chunk("fdAT", big_endian(sequence++) + pixel_data(png));
  }
  return bytes + chunk("IEND", "");
}

void require_png_name(const std::string& out, const char* what) {
  std::string ending = std::filesystem::path(out).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char letter) { return std::tolower(letter); });
  for (const char* other : {".gif", ".jpg", ".jpeg", ".webp", ".mp4"})
    if (ending == other) throw InvalidInput(fmt::format("--out {}: is {}; name it .png", out, what));
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
  throw NotFinite(fmt::format(
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
