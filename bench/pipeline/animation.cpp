#include <fmt/format.h>
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/pipeline/pictures.h"

namespace noisefloor::pipeline {
namespace {

constexpr int kColours = 256;
constexpr std::array<int, 3> kLevels{6, 7, 6};  // of red, green, blue

// The 8 x 8 Bayer matrix (Bayer 1973): each place's rank among 64, neighbours far apart. Bits of x ^ y and y, the
// lowest of them weighing most.
int bayer(std::int64_t x, std::int64_t y) {
  int rank = 0;
  for (int bit = 0; bit < 3; ++bit) {
    const auto across = static_cast<int>((x >> bit) & 1), down = static_cast<int>((y >> bit) & 1);
    rank |= ((across ^ down) << 1 | down) << (2 * (2 - bit));
  }
  return rank;
}

// The level of `value` among `levels` from 0 to 255, dithered.
int dithered(std::uint8_t value, int levels, double threshold) {
  const double place = value / 255.0 * (levels - 1);
  return std::clamp(static_cast<int>(std::floor(place + 0.5 + threshold)), 0, levels - 1);
}

struct Close {
  void operator()(GifFileType* gif) const { EGifCloseFile(gif, nullptr); }
};
struct Free {
  void operator()(ColorMapObject* map) const { GifFreeMapObject(map); }
};

// Calls of giflib that give GIF_ERROR throw its own word for why.
[[noreturn]] void fail(int error) {
  const char* why = GifErrorString(error);
  throw std::runtime_error(why != nullptr ? why : "unknown error of giflib");
}

std::string gif_of(std::span<const Picture> frames, int delay, int last_delay) {
  std::string bytes;
  const auto append = [](GifFileType* file, const GifByteType* data, int size) {
    static_cast<std::string*>(file->UserData)
        ->append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    return size;
  };
  int error = 0;
  std::unique_ptr<GifFileType, Close> gif(EGifOpen(&bytes, append, &error));
  if (!gif) fail(error);
  const auto check = [&](int result) {
    if (result == GIF_ERROR) fail(gif->Error);
  };

  std::vector<GifColorType> colours;
  for (const Colour& colour : gif_palette(frames[0].channels))
    colours.push_back({colour.red, colour.green, colour.blue});
  const std::unique_ptr<ColorMapObject, Free> map(GifMakeMapObject(kColours, colours.data()));
  if (!map) throw std::runtime_error("out of memory");
  EGifSetGifVersion(gif.get(), true);  // GIF89a: extensions
  const int width = static_cast<int>(frames[0].width), height = static_cast<int>(frames[0].height);
  check(EGifPutScreenDesc(gif.get(), width, height, 8, 0, map.get()));
  // Repeat for ever: Netscape's extension, which every reader of animations knows.
  const GifByteType again[] = {1, 0, 0};
  check(EGifPutExtensionLeader(gif.get(), APPLICATION_EXT_FUNC_CODE));
  check(EGifPutExtensionBlock(gif.get(), 11, "NETSCAPE2.0"));
  check(EGifPutExtensionBlock(gif.get(), sizeof again, again));
  check(EGifPutExtensionTrailer(gif.get()));

  for (const Picture& picture : frames) {
    const int shown = &picture == &frames.back() ? last_delay : delay;
    const GraphicsControlBlock control{DISPOSE_DO_NOT, false, shown, NO_TRANSPARENT_COLOR};
    GifByteType extension[4];
    EGifGCBToExtension(&control, extension);
    check(EGifPutExtension(gif.get(), GRAPHICS_EXT_FUNC_CODE, sizeof extension, extension));
    check(EGifPutImageDesc(gif.get(), 0, 0, width, height, false, nullptr));
    std::vector<std::uint8_t> indices = gif_indices(picture);
    for (int y = 0; y < height; ++y)
      check(EGifPutLine(gif.get(), indices.data() + static_cast<std::ptrdiff_t>(y) * width, width));
  }
  if (EGifCloseFile(gif.release(), &error) == GIF_ERROR) fail(error);
  return bytes;
}

}  // namespace

std::vector<Colour> gif_palette(std::int64_t channels) {
  std::vector<Colour> palette(kColours);
  for (int i = 0; i < kColours; ++i) {
    const auto grey = static_cast<std::uint8_t>(i);
    palette[static_cast<std::size_t>(i)] = {grey, grey, grey};
  }
  if (channels == 1) return palette;
  const auto shade = [](int level, int levels) {
    return static_cast<std::uint8_t>(std::lround(255.0 * level / (levels - 1)));
  };
  std::size_t at = 0;
  for (int red = 0; red < kLevels[0]; ++red)
    for (int green = 0; green < kLevels[1]; ++green)
      for (int blue = 0; blue < kLevels[2]; ++blue)
        palette[at++] = {shade(red, kLevels[0]), shade(green, kLevels[1]), shade(blue, kLevels[2])};
  return palette;
}

std::vector<std::uint8_t> gif_indices(const Picture& picture) {
  if (picture.channels == 1) return picture.pixels;
  std::vector<std::uint8_t> indices(static_cast<std::size_t>(picture.width * picture.height));
  for (std::int64_t y = 0; y < picture.height; ++y) {
    for (std::int64_t x = 0; x < picture.width; ++x) {
      const auto pixel = static_cast<std::size_t>(y * picture.width + x);
      const double threshold = (bayer(x, y) + 0.5) / 64 - 0.5;
      int index = 0;
      for (std::size_t c = 0; c < 3; ++c)
        index = index * kLevels[c] + dithered(picture.pixels[3 * pixel + c], kLevels[c], threshold);
      indices[pixel] = static_cast<std::uint8_t>(index);
    }
  }
  return indices;
}

std::string encode_gif(const std::filesystem::path& file, std::span<const Picture> frames, int delay, int last_delay) {
  require_animation(file, frames);
  try {
    if (std::max(frames[0].width, frames[0].height) > kMostGifPixels)
      throw std::runtime_error(fmt::format("{} x {} pixels, a GIF's sides have {} at most", frames[0].width,
                                           frames[0].height, kMostGifPixels));
    return gif_of(frames, delay, last_delay);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: the animation could not be encoded: {}", file.string(), error.what()));
  }
}

}  // namespace noisefloor::pipeline
