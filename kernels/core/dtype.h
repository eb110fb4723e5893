// The element types of tensors, and their conversion on the host (round to nearest even, as the GPU rounds).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace noisefloor {

enum class DType : std::uint8_t { fp32, bf16, fp16, fp64, int32, int64, uint8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
    case DType::int64:
      return 8;
    case DType::fp32:
    case DType::int32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::uint8:
      return 1;
  }
  return 0;
}

const char* to_string(DType dtype);  // "bf16", "fp16", "fp32", ...
std::optional<DType> parse_dtype(std::string_view text);

// Half the distance from 1 to the next number: the largest relative error of rounding into `dtype`.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::fp16:
      return 0x1p-11;
    case DType::fp64:
      return 0x1p-53;
    default:
      return 0x1p-24;
  }
}

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE binary16 by scaling in float: subnormals come out of the multiplication, infinities and NaN keep their exponent.
inline float fp16_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  if (magnitude >= 0x7c00u) bits |= 0x7f800000u;
  return std::bit_cast<float>(bits | sign);
}

inline std::uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65520 or more: infinity
  if (magnitude < 0x38800000u) {                        // subnormal half: adding 0.5 leaves the rounded bits at the end
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

// Element `index` of an array of `dtype` (fp32, bf16, fp16, fp64), exactly.
double load_element(DType dtype, const void* data, std::int64_t index);
// Rounds `value` into element `index`.
void store_element(DType dtype, void* data, std::int64_t index, double value);
// `count` elements starting at `begin`, widened to float; the loop vectorises. fp32, bf16 and fp16 only.
void load_floats(DType dtype, const void* data, std::int64_t begin, std::int64_t count, float* out);
// The largest absolute value of floating-point elements; infinite where one is not finite.
double largest_magnitude(DType dtype, const void* data, std::int64_t count);
void store_floats(DType dtype, void* data, std::int64_t begin, std::int64_t count, const float* in);

}  // namespace noisefloor
