// Activations for host loops that the compiler vectorises: no branches, no calls. (glibc's vector versions of expf and
// erfcf are only declared under -ffast-math, which would also give up NaN and infinity.)
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace noisefloor {

// e^x for x clamped to [-87, 88], with a relative error of at most 1e-7 * (1 + |x|); NaN stays NaN. 2^whole is built
// from its bits, and 2^part, |part| <= 1/2, is its Taylor series (the first term left out is under 6e-9).
inline float vector_exp(float x) {
  const float t = std::min(std::max(x, -87.0f), 88.0f) * 1.44269504f;  // log2(e)
  const float whole = std::floor(t + 0.5f);
  const float part = (t - whole) * 0.69314718f;  // ln(2)
  float series = 1.0f / 5040;
  series = series * part + 1.0f / 720;
  series = series * part + 1.0f / 120;
  series = series * part + 1.0f / 24;
  series = series * part + 1.0f / 6;
  series = series * part + 0.5f;
  series = series * part + 1.0f;
  series = series * part + 1.0f;
  const std::int32_t exponent = (static_cast<std::int32_t>(whole) + 127) << 23;
  return series * std::bit_cast<float>(exponent);
}

inline float vector_silu(float x) {
  return x / (1 + vector_exp(-x));
}

// Its derivative.
inline float vector_silu_slope(float x) {
  const float sigmoid = 1 / (1 + vector_exp(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

// Phi(x) by Abramowitz and Stegun 7.1.26 (absolute error 7.5e-8), and exp(-x^2 / 2), which it takes.
struct NormalPair {
  float below, bell;
};
inline NormalPair vector_normal(float x) {
  const float z = std::fabs(x) * 0.70710678f;
  const float t = 1 / (1 + 0.3275911f * z);
  float series = 1.061405429f;
  series = series * t - 1.453152027f;
  series = series * t + 1.421413741f;
  series = series * t - 0.284496736f;
  series = series * t + 0.254829592f;
  const float bell = vector_exp(-z * z);
  const float tail = 0.5f * t * series * bell;  // Phi(-|x|)
  return {x < 0 ? tail : 1 - tail, bell};
}

// x * Phi(x), and its derivative.
inline float vector_gelu(float x) {
  return x * vector_normal(x).below;
}
inline float vector_gelu_slope(float x) {
  const NormalPair normal = vector_normal(x);
  return normal.below + x * 0.39894228f * normal.bell;
}

// 0.5x * (1 + tanh(sqrt(2/pi) * (x + 0.044715x^3))), where 0.5 * (1 + tanh(u)) is 1 / (1 + e^-2u).
inline float vector_gelu_tanh(float x) {
  return x / (1 + vector_exp(-1.59576912f * (x + 0.044715f * x * x * x)));
}

}  // namespace noisefloor
