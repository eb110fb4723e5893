// What every GPU variant does to a finished fp32 sum: scale, bias, activation, residual. Device code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/core/vector.cuh"
#include "kernels/gemm/gemm.h"

namespace noisefloor::gemm {

// x * Phi(x). In fp32 through erfc, which keeps its relative accuracy where Phi is small. For 16-bit outputs by
// Abramowitz and Stegun 7.1.26 (absolute error of erf at most 1.5e-7, far below their rounding): one reciprocal, one
// exponential, six FMAs.
template <class T>
__device__ __forceinline__ float gelu(float x) {
  constexpr float kInverseSqrt2 = 0.70710678118654752f;
  if constexpr (std::is_same_v<T, float>) {
    return 0.5f * x * erfcf(-x * kInverseSqrt2);
  } else {
    const float z = fabsf(x) * kInverseSqrt2;
    const float t = __fdividef(1.0f, 1.0f + 0.3275911f * z);
    float series = fmaf(t, 1.061405429f, -1.453152027f);
    series = fmaf(t, series, 1.421413741f);
    series = fmaf(t, series, -0.284496736f);
    series = fmaf(t, series, 0.254829592f);
    const float tail = 0.5f * t * series * __expf(-z * z);  // Phi(-|x|)
    return x * (x < 0 ? tail : 1.0f - tail);
  }
}

// x * sigmoid(s).
template <class T>
__device__ __forceinline__ float times_sigmoid(float x, float s) {
  if constexpr (std::is_same_v<T, float>) return x / (1.0f + expf(-s));
  return __fdividef(x, 1.0f + __expf(-s));
}

// 0.5 * (1 + tanh(u)) is sigmoid(2u).
template <class T>
__device__ __forceinline__ float gelu_tanh(float x) {
  constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
  return times_sigmoid<T>(x, kTwoSqrt2OverPi * fmaf(0.044715f * x * x, x, x));
}

// Passed by value to a kernel. `act` is the same for every thread, so the switch does not diverge.
template <class T>
struct Epilogue {
  const T* bias;      // null: none
  const T* residual;  // null: none; [m, n]
  std::int64_t n;
  float scale;
  Activation act;

  Epilogue(const Problem& problem, const Tensors& tensors)
      : bias(static_cast<const T*>(tensors.bias)),
        residual(static_cast<const T*>(tensors.residual)),
        n(problem.n),
        scale(static_cast<float>(problem.scale)),
        act(problem.act) {}

  __host__ __device__ bool gated() const { return act == Activation::geglu; }

  // The biased sum of row `row` of B (for geglu, column j of the gate is row n + j).
  __device__ __forceinline__ float linear(float sum, std::int64_t row) const {
    return bias ? fmaf(scale, sum, to_float(bias[row])) : scale * sum;
  }
  // The activation of every problem but geglu.
  __device__ __forceinline__ float activate(float x) const {
    switch (act) {
      case Activation::silu:
        return times_sigmoid<T>(x, x);
      case Activation::gelu:
        return gelu<T>(x);
      case Activation::gelu_tanh:
        return gelu_tanh<T>(x);
      default:
        return x;
    }
  }
  __device__ __forceinline__ float gate(float value, float gate_sum) const { return value * gelu<T>(gate_sum); }
};

// kCount neighbouring elements, moved by the widest access that their size allows.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Run {
  T v[kCount];
};

// Finishes outputs [column, column + kCount) of row `row` of D from their sums (for geglu: of value and gate) and
// stores those inside D. `column` is a multiple of kCount, so that with n % kCount == 0 every access is a whole Run.
template <class T, int kCount>
__device__ __forceinline__ void store_outputs(const Epilogue<T>& epilogue, T* __restrict__ d, std::int64_t m,
                                              std::int64_t row, std::int64_t column, const float (&sums)[kCount],
                                              const float (&gates)[kCount]) {
  using R = Run<T, kCount>;
  const std::int64_t n = epilogue.n;
  if (row >= m || column >= n) return;
  const std::int64_t at = row * n + column;
  R bias{}, gate_bias{}, residual{}, out;
  const bool whole = n % kCount == 0;
  const auto load = [&](R& run, const T* from) {
    if (whole) {
      run = *reinterpret_cast<const R*>(from);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (column + i < n) run.v[i] = from[i];
    }
  };
  if (epilogue.bias) load(bias, epilogue.bias + column);
  if (epilogue.bias && epilogue.gated()) load(gate_bias, epilogue.bias + n + column);
  if (epilogue.residual) load(residual, epilogue.residual + at);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float x = fmaf(epilogue.scale, sums[i], to_float(bias.v[i]));
    float y = epilogue.gated() ? epilogue.gate(x, fmaf(epilogue.scale, gates[i], to_float(gate_bias.v[i])))
                               : epilogue.activate(x);
    out.v[i] = from_float<T>(y + to_float(residual.v[i]));  // zeros where there is no bias or residual
  }
  if (whole) {
    *reinterpret_cast<R*>(d + at) = out;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < n) d[at + i] = out.v[i];
  }
}

// Calls body(T{}) with the device type of a 16-bit dtype; returns what it returns.
template <class Body>
Status with_half_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::bf16:
      return body(__nv_bfloat16{});
    case DType::fp16:
      return body(__half{});
    default:
      return failure(StatusCode::unsupported_problem, "needs bf16 or fp16");
  }
}

// The same for every dtype of the op.
template <class Body>
Status with_device_type(DType dtype, const Body& body) {
  return dtype == DType::fp32 ? body(float{}) : with_half_type(dtype, body);
}

}  // namespace noisefloor::gemm
