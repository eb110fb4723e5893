// Activations in registers. Outputs of 16 bits take the fast exponential and reciprocal, whose error (2^-21) is far
// below their rounding.
#pragma once

#include <type_traits>

namespace noisefloor {

template <class T>
__device__ __forceinline__ float exponential(float x) {
  return std::is_same_v<T, float> ? expf(x) : __expf(x);
}
template <class T>
__device__ __forceinline__ float quotient(float x, float y) {
  return std::is_same_v<T, float> ? x / y : __fdividef(x, y);
}

// x * sigmoid(s).
template <class T>
__device__ __forceinline__ float times_sigmoid(float x, float s) {
  return quotient<T>(x, 1.0f + exponential<T>(-s));
}

template <class T>
__device__ __forceinline__ float silu(float x) {
  return times_sigmoid<T>(x, x);
}

// x * Phi(x), Phi by Abramowitz and Stegun 7.1.26 (absolute error 7.5e-8): one reciprocal, one exponential, six FMAs.
template <class T>
__device__ __forceinline__ float gelu(float x) {
  const float z = fabsf(x) * 0.70710678118654752f;  // 1 / sqrt(2)
  const float t = quotient<T>(1.0f, fmaf(0.3275911f, z, 1.0f));
  float series = fmaf(t, 1.061405429f, -1.453152027f);
  series = fmaf(t, series, 1.421413741f);
  series = fmaf(t, series, -0.284496736f);
  series = fmaf(t, series, 0.254829592f);
  const float tail = 0.5f * t * series * exponential<T>(-z * z);  // Phi(-|x|)
  return x * (x < 0 ? tail : 1.0f - tail);
}

// max(x, 0); a NaN stays.
__device__ __forceinline__ float relu(float x) {
  return x < 0 ? 0.0f : x;
}

}  // namespace noisefloor
