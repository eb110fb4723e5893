// Activations in registers. Outputs of 16 bits take the special function unit's exponential and reciprocal, one
// instruction each, whose error (2^-21) is far below their rounding.
#pragma once

#include <type_traits>

#include "kernels/ptx/special_functions.cuh"

namespace noisefloor {

inline constexpr float kLog2E = 1.44269504f;

// x * sigmoid(s).
template <class T>
__device__ __forceinline__ float times_sigmoid(float x, float s) {
  if constexpr (std::is_same_v<T, float>)
    return x / (1.0f + expf(-s));
  else
    return x * ptx::rcp_approx(1.0f + ptx::exp2_approx(-kLog2E * s));
}

template <class T>
__device__ __forceinline__ float silu(float x) {
  return times_sigmoid<T>(x, x);
}

// max(x, 0); a NaN stays.
__device__ __forceinline__ float relu(float x) {
  return x < 0 ? 0.0f : x;
}

// Phi(-|x|) by Abramowitz and Stegun 7.1.26 (absolute error 7.5e-8) with z = |x| / sqrt(2), and exp(-z^2): one
// reciprocal, one exponential, six FMAs. `magnitude` is |x|; scaled by sqrt(log2(e) / 2), exp(-z^2) is 2^-scaled^2.
template <class T>
__device__ __forceinline__ float normal_tail(float magnitude, float& bell) {
  constexpr float kScale = 0.84932180f;               // sqrt(log2(e) / 2)
  constexpr float kSlope = 0.3275911f / 1.20112241f;  // by z / |scaled| = 1 / sqrt(log2(e))
  const float scaled = kScale * magnitude;
  const float denominator = fmaf(kSlope, scaled, 1.0f), power = -scaled * scaled;
  float t;
  if constexpr (std::is_same_v<T, float>)
    t = 1.0f / denominator, bell = exp2f(power);
  else
    t = ptx::rcp_approx(denominator), bell = ptx::exp2_approx(power);
  float series = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
  series = fmaf(t, series, 0.5f * 1.421413741f);
  series = fmaf(t, series, 0.5f * -0.284496736f);
  series = fmaf(t, series, 0.5f * 0.254829592f);
  return t * series * bell;
}
inline constexpr float kMostMagnitude = 1e18f;  // whose square is finite; behind it Phi(-|x|) is 0 anyway

// x * Phi(x) = max(x, 0) - |x| Phi(-|x|).
template <class T>
__device__ __forceinline__ float gelu(float x) {
  float bell;
  const float magnitude = fminf(fabsf(x), kMostMagnitude);
  return fmaf(-magnitude, normal_tail<T>(magnitude, bell), relu(x));
}

// Their derivatives.
template <class T>
__device__ __forceinline__ float silu_slope(float x) {
  const float sigmoid = times_sigmoid<T>(1.0f, x);
  return sigmoid * fmaf(x, 1.0f - sigmoid, 1.0f);
}

// Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi).
template <class T>
__device__ __forceinline__ float gelu_slope(float x) {
  float bell;
  const float tail = normal_tail<T>(fminf(fabsf(x), kMostMagnitude), bell);
  return fmaf(0.39894228f * x, bell, x < 0 ? tail : 1.0f - tail);
}

}  // namespace noisefloor
