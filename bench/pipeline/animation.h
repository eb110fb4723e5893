// Pictures one after the other, in an animated GIF or PNG.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "bench/pipeline/pictures.h"

namespace noisefloor::pipeline {

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

// Frames of one size, `fps` in a second, for ever again, as an animated PNG: whoever knows none sees the first frame.
// Source: PNG Specification (third edition, 2025), 11.3.6. Throws as encode_gif does.
std::string encode_animated_png(const std::filesystem::path& file, std::span<const Picture> frames, int fps);

}  // namespace noisefloor::pipeline
