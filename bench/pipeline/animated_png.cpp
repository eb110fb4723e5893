// An animated PNG is a PNG whose frames behind the first stand in chunks of their own: the pixel data of a PNG of each.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bench/pipeline/pictures.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::size_t kSignature = 8, kChunkHead = 8, kCrc = 4;
constexpr std::size_t kHeaderChunk = kChunkHead + 13 + kCrc;  // IHDR, the first

std::string big_endian(std::uint32_t value, int bytes = 4) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 255);
  return text;
}

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

std::uint32_t crc_of(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] & 1) != 0 ? 0xEDB88320u ^ table[i] >> 1 : table[i] >> 1;
    }
    return table;
  }();
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 255] ^ crc >> 8;
  return ~crc;
}

std::string chunk(const char* type, const std::string& data) {
  const std::string body = type + data;
  return big_endian(static_cast<std::uint32_t>(data.size())) + body + big_endian(crc_of(body));
}

// All of a PNG's chunks IDAT, one behind the other.
std::string pixel_data(std::string_view png) {
  std::string data;
  for (std::size_t at = kSignature; at + kChunkHead + kCrc <= png.size();) {
    const std::size_t size = number_at(png, at);
    if (png.substr(at + 4, 4) == "IDAT") data += png.substr(at + kChunkHead, size);
    at += kChunkHead + size + kCrc;
  }
  return data;
}

}  // namespace

std::string encode_animated_png(const std::filesystem::path& file, std::span<const Picture> frames, int fps) {
  std::string bytes;
  std::uint32_t sequence = 0;
  for (const Picture& frame : frames) {
    if (frame.width != frames[0].width || frame.height != frames[0].height || frame.channels != frames[0].channels)
      throw std::runtime_error(file.string() + ": the animation could not be encoded: frames of more than one size");
    const std::string png = encode_png(file, frame);
    const bool first = bytes.empty();
    if (first)
      bytes = png.substr(0, kSignature + kHeaderChunk) +
              chunk("acTL", big_endian(static_cast<std::uint32_t>(frames.size())) + big_endian(0));
    // The whole picture, 1 / fps seconds; nothing is disposed of or blended.
    bytes += chunk("fcTL", big_endian(sequence++) + big_endian(static_cast<std::uint32_t>(frame.width)) +
                               big_endian(static_cast<std::uint32_t>(frame.height)) + big_endian(0) + big_endian(0) +
                               big_endian(1, 2) + big_endian(static_cast<std::uint32_t>(fps), 2) + big_endian(0, 2));
    bytes += first ? chunk("IDAT", pixel_data(png)) : chunk("fdAT", big_endian(sequence++) + pixel_data(png));
  }
  if (frames.empty()) throw std::runtime_error(file.string() + ": the animation could not be encoded: no frame");
  return bytes + chunk("IEND", "");
}

}  // namespace noisefloor::pipeline
