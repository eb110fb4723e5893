#include "kernels/core/dtype.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace noisefloor {
namespace {

template <class T>
T read(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void write(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

constexpr struct {
  DType dtype;
  const char* name;
} kNames[] = {{DType::fp32, "fp32"},   {DType::bf16, "bf16"},   {DType::fp16, "fp16"},  {DType::fp64, "fp64"},
              {DType::int32, "int32"}, {DType::int64, "int64"}, {DType::uint8, "uint8"}};

}  // namespace

const char* to_string(DType dtype) {
  for (const auto& entry : kNames)
    if (entry.dtype == dtype) return entry.name;
  return "?";
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (const auto& entry : kNames)
    if (text == entry.name) return entry.dtype;
  return std::nullopt;
}

double load_element(DType dtype, const void* data, std::int64_t index) {
  switch (dtype) {
    case DType::fp32:
      return read<float>(data, index);
    case DType::bf16:
      return bf16_to_float(read<std::uint16_t>(data, index));
    case DType::fp16:
      return fp16_to_float(read<std::uint16_t>(data, index));
    case DType::fp64:
      return read<double>(data, index);
    case DType::int32:
      return read<std::int32_t>(data, index);
    case DType::int64:
      return static_cast<double>(read<std::int64_t>(data, index));
    case DType::uint8:
      return read<std::uint8_t>(data, index);
  }
  return 0;
}

void store_element(DType dtype, void* data, std::int64_t index, double value) {
  switch (dtype) {
    case DType::fp32:
      return write(data, index, static_cast<float>(value));
    case DType::bf16:
      return write(data, index, float_to_bf16(static_cast<float>(value)));
    case DType::fp16:
      return write(data, index, float_to_fp16(static_cast<float>(value)));
    case DType::fp64:
      return write(data, index, value);
    case DType::int32:
      return write(data, index, static_cast<std::int32_t>(value));
    case DType::int64:
      return write(data, index, static_cast<std::int64_t>(value));
    case DType::uint8:
      return write(data, index, static_cast<std::uint8_t>(value));
  }
}

namespace {
// The order of magnitudes is that of their bits, and what is not finite comes last. As signed integers, whose maximum
// every machine's vectors have.
template <class Bits>
double largest(DType dtype, const void* data, std::int64_t count) {
  const auto* in = static_cast<const Bits*>(data);
  Bits most = 0;
  for (std::int64_t i = 0; i < count; ++i)
    most = std::max(most, static_cast<Bits>(in[i] & std::numeric_limits<Bits>::max()));
  const double value = load_element(dtype, &most, 0);
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}
}  // namespace

double largest_magnitude(DType dtype, const void* data, std::int64_t count) {
  switch (dtype) {
    case DType::fp64:
      return largest<std::int64_t>(dtype, data, count);
    case DType::fp32:
      return largest<std::int32_t>(dtype, data, count);
    case DType::bf16:
    case DType::fp16:
      return largest<std::int16_t>(dtype, data, count);
    default:
      throw std::invalid_argument("largest_magnitude: needs a floating-point dtype");
  }
}

void load_floats(DType dtype, const void* data, std::int64_t begin, std::int64_t count, float* out) {
  if (count == 0) return;  // memcpy takes no null pointers, not even for nothing
  if (dtype == DType::fp32) {
    std::memcpy(out, static_cast<const float*>(data) + begin, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto* in = static_cast<const std::uint16_t*>(data) + begin;
  if (dtype == DType::bf16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = bf16_to_float(in[i]);
    return;
  }
  std::int64_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
#endif
  for (; i < count; ++i) out[i] = fp16_to_float(in[i]);
}

void store_floats(DType dtype, void* data, std::int64_t begin, std::int64_t count, const float* in) {
  if (count == 0) return;  // memcpy takes no null pointers, not even for nothing
  if (dtype == DType::fp32) {
    std::memcpy(static_cast<float*>(data) + begin, in, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  auto* out = static_cast<std::uint16_t*>(data) + begin;
  if (dtype == DType::bf16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = float_to_bf16(in[i]);
    return;
  }
  std::int64_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  for (; i < count; ++i) out[i] = float_to_fp16(in[i]);
}

}  // namespace noisefloor
