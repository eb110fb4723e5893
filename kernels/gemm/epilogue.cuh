// What every GPU variant does to a finished fp32 sum: scale, bias, shift, activation, residual, blend. Device code
// only.
#pragma once

#include <cstdint>

#include "kernels/device/activations.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/vector.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/product/epilogue.cuh"

namespace noisefloor::gemm {

using product::Run;

// 0.5 * (1 + tanh(u)) is sigmoid(2u).
template <class T>
__device__ __forceinline__ float gelu_tanh(float x) {
  constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
  return times_sigmoid<T>(x, kTwoSqrt2OverPi * fmaf(0.044715f * x * x, x, x));
}

__device__ __forceinline__ float blended(float x, float other, float share) {
  return fmaf(share, other - x, x);
}

// Passed by value to a kernel. `act` is the same for every thread, so the switch does not diverge.
template <class T>
struct Epilogue {
  const T* bias;         // null: none
  const T* image_shift;  // null: none; [images, n]
  const T* residual;     // null: none; [m, n]
  const T* blend;        // null: none; [m, n]
  const float* share;    // of blend
  std::int64_t n;
  int m, part;  // columns of a part of D; n where it is one matrix
  Divider rows_per_image;
  float scale;
  Activation act;

  Epilogue(const Problem& problem, const Tensors& tensors)
      : bias(static_cast<const T*>(tensors.bias)),
        image_shift(static_cast<const T*>(tensors.image_shift)),
        residual(static_cast<const T*>(tensors.residual)),
        blend(static_cast<const T*>(tensors.blend)),
        share(tensors.share),
        n(problem.n),
        m(static_cast<int>(problem.m)),
        part(static_cast<int>(problem.part())),
        rows_per_image(static_cast<int>(problem.rows_per_image())),
        scale(static_cast<float>(problem.scale)),
        act(problem.act) {}

  __host__ __device__ bool gated() const { return act == Activation::geglu; }

  // Where element (row, column) of the product lies in D.
  __device__ __forceinline__ std::int64_t at(std::int64_t row, std::int64_t column) const {
    if (part == n) return row * n + column;
    const int which = static_cast<int>(column) / part;
    return (std::int64_t{which} * (m - 1) + row) * part + column;
  }
  // The biased sum of row `row` of B (for geglu, column j of the gate is row n + j).
  __device__ __forceinline__ float linear(float sum, std::int64_t row) const {
    return bias ? fmaf(scale, sum, to_float(bias[row])) : scale * sum;
  }
  __device__ __forceinline__ int image(std::int64_t row) const { return static_cast<int>(row) / rows_per_image; }
  // The shift of row `row`: n of its image's, where the problem has any.
  __device__ __forceinline__ const T* shift_of(std::int64_t row) const { return image_shift + image(row) * n; }
  // Whether rows [begin, end), as far as they lie in D, are shifted, and alike.
  __device__ __forceinline__ bool one_image(std::int64_t begin, std::int64_t end) const {
    const int first = static_cast<int>(begin), last = min(static_cast<int>(end), m) - 1;
    return image_shift && first <= last && first / rows_per_image == last / rows_per_image;
  }
  // The activation of every problem but geglu, its switch outside the loop.
  template <int kCount>
  __device__ __forceinline__ void activate(float (&x)[kCount]) const {
    const auto each = [&](auto function) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = function(x[i]);
    };
    switch (act) {
      case Activation::silu:
        return each([](float v) { return times_sigmoid<T>(v, v); });
      case Activation::gelu:
        return each([](float v) { return gelu<T>(v); });
      case Activation::gelu_tanh:
        return each([](float v) { return gelu_tanh<T>(v); });
      default:
        return;
    }
  }
  __device__ __forceinline__ float activated(float x) const {
    float one[1] = {x};
    activate(one);
    return one[0];
  }
  __device__ __forceinline__ float gate(float value, float gate_sum) const {
    return value * gelu<T>(gate_sum);
  }
};

// Finishes the outputs of kCount neighbouring columns of D, for any rows: bias is loaded once. `column` is a multiple
// of kCount, so that with n % kCount == 0 every access is a whole Run.
template <class T, int kCount>
struct ColumnEpilogue {
  using R = Run<T, kCount>;
  const Epilogue<T>& epilogue;
  std::int64_t column;
  bool whole;
  R bias{}, gate_bias{};  // zeros where there is no bias

  __device__ __forceinline__ ColumnEpilogue(const Epilogue<T>& shared, std::int64_t first)
      : epilogue(shared), column(first), whole(shared.n % kCount == 0) {
    if (epilogue.bias == nullptr) return;
    bias = load(epilogue.bias + column);
    if (epilogue.gated()) gate_bias = load(epilogue.bias + epilogue.n + column);
  }

  __device__ __forceinline__ R load(const T* __restrict__ from) const {
    R run{};
    if (column >= epilogue.n) return run;
    if (whole) return *reinterpret_cast<const R*>(from);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < epilogue.n) run.v[i] = from[i];
    return run;
  }

  // Zeros where there is no residual.
  __device__ __forceinline__ R residual(std::int64_t row) const {
    return epilogue.residual ? load(epilogue.residual + row * epilogue.n + column) : R{};
  }

  // Stores the outputs that lie inside D; `sums` (for geglu with `gates`) are the sums of products. `row` lies in D.
  __device__ __forceinline__ void store(T* __restrict__ d, std::int64_t row, const float (&sums)[kCount],
                                        const float (&gates)[kCount], const R& residual) const {
    if (column >= epilogue.n) return;
    float x[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = fmaf(epilogue.scale, sums[i], to_float(bias.v[i]));
    if (epilogue.image_shift) {
      const R shift = load(epilogue.shift_of(row) + column);
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] += to_float(shift.v[i]);
    }
    if (epilogue.gated()) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        x[i] = epilogue.gate(x[i], fmaf(epilogue.scale, gates[i], to_float(gate_bias.v[i])));
    } else {
      epilogue.activate(x);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += to_float(residual.v[i]);
    if (epilogue.blend) {
      const T* other = epilogue.blend + row * epilogue.n + column;
      const float share = *epilogue.share;
#pragma unroll
      for (int i = 0; i < kCount; ++i)  // one by one: a Run more would spill where sums fill the registers
        if (column + i < epilogue.n) x[i] = blended(x[i], to_float(other[i]), share);
    }
    R out;
#pragma unroll
    for (int i = 0; i < kCount; ++i) out.v[i] = from_float<T>(x[i]);
    T* to = d + epilogue.at(row, column);
    if (whole) {
      *reinterpret_cast<R*>(to) = out;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < epilogue.n) to[i] = out.v[i];
  }
};

}  // namespace noisefloor::gemm
