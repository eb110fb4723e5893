// gemm's products of gradients: A and B in any layout, D of the row's type or in fp32, with sums of A's rows. What
// naive and tiled share. Device code only.
#pragma once

#include <cstdint>

#include "kernels/device/dispatch.cuh"
#include "kernels/gemm/gemm.h"

namespace noisefloor::gemm {

// Passed by value to a kernel; D is of type U.
template <class T, class U>
struct Gradient {
  using Element = T;
  const T *a, *b, *bias, *residual;  // bias, residual: null: none
  U* d;
  float* row_sums;  // null: none
  std::int64_t m, n, k;
  std::int64_t a_row, a_step, b_row, b_step;  // elements from a row to the next, and along k; B's rows are D's columns
  float scale;

  Gradient(const Problem& p, const Tensors& t)
      : a(static_cast<const T*>(t.a)),
        b(static_cast<const T*>(t.b)),
        bias(static_cast<const T*>(t.bias)),
        residual(static_cast<const T*>(t.residual)),
        d(static_cast<U*>(t.d)),
        row_sums(t.row_sums),
        m(p.m),
        n(p.n),
        k(p.k),
        a_row(p.layout == Layout::tn ? 1 : p.k),
        a_step(p.layout == Layout::tn ? p.m : 1),
        b_row(p.layout == Layout::nt ? p.k : 1),
        b_step(p.layout == Layout::nt ? 1 : p.n),
        scale(static_cast<float>(p.scale)) {}

  // An output that exists, of its sum of products.
  __device__ __forceinline__ void store(std::int64_t row, std::int64_t column, float sum) const {
    float x = fmaf(scale, sum, bias ? to_float(bias[column]) : 0.0f);
    if (residual) x += to_float(residual[row * n + column]);
    d[row * n + column] = from_float<U>(x);
  }
};

// Calls run(Gradient) with the problem's.
template <class Run>
Status with_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Run& run) {
  return with_type(dtype, [&]<class T>(T) {
    return problem.to == Target::fp32 ? run(Gradient<T, float>(problem, tensors))
                                      : run(Gradient<T, T>(problem, tensors));
  });
}

}  // namespace noisefloor::gemm
