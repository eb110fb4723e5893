// gemm's part of the products' epilogue (kernels/product): its activations, gate, blend and parts. Device code only.
#pragma once

#include <cstdint>

#include "kernels/device/divider.h"
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

struct Outputs {
  using Activation = gemm::Activation;
  static constexpr product::Terms kTerms{.gate = true, .blend = true, .parts = true};

  // The activation of every problem but geglu.
  template <class T, int kCount>
  __device__ __forceinline__ static void apply(Activation act, float (&v)[kCount]) {
    const auto each = [&](auto function) {
#pragma unroll
      for (float& x : v) x = function(x);
    };
    switch (act) {
      case Activation::silu:
        return each([](float x) { return silu<T>(x); });
      case Activation::gelu:
        return each([](float x) { return gelu<T>(x); });
      case Activation::gelu_tanh:
        return each([](float x) { return gelu_tanh<T>(x); });
      default:
        return;
    }
  }
};

template <class T>
struct Epilogue : product::Epilogue<T, Outputs> {
  Divider rows_per_image;

  Epilogue(const Problem& problem, const Tensors& tensors)
      : product::Epilogue<T, Outputs>{.columns = static_cast<int>(problem.n),
                                      .part = static_cast<int>(problem.part()),
                                      .rows = static_cast<int>(problem.m),
                                      .act = problem.act,
                                      .scale = static_cast<float>(problem.scale),
                                      .gated = problem.gated(),
                                      .out = static_cast<T*>(tensors.d),
                                      .bias = static_cast<const T*>(tensors.bias),
                                      .image_shift = static_cast<const T*>(tensors.image_shift),
                                      .residual = static_cast<const T*>(tensors.residual),
                                      .blend = static_cast<const T*>(tensors.blend),
                                      .share = tensors.share},
        rows_per_image(static_cast<int>(problem.rows_per_image())) {}

  __device__ __forceinline__ int image(std::int64_t row) const { return static_cast<int>(row) / rows_per_image; }
  // The shift of row `row`: that of its image, where the problem has any.
  __device__ __forceinline__ const T* shift_of(std::int64_t row) const {
    return this->image_shift + std::int64_t{image(row)} * this->columns;
  }
  // Whether rows [begin, end), as far as they lie in D, are shifted, and alike.
  __device__ __forceinline__ bool one_image(std::int64_t begin, std::int64_t end) const {
    const int first = static_cast<int>(begin), last = min(static_cast<int>(end), this->rows) - 1;
    return this->image_shift && first <= last && first / rows_per_image == last / rows_per_image;
  }
};

// Of kCount neighbouring columns.
template <class T, int kCount>
struct Columns : product::Columns<Epilogue<T>, kCount> {
  using product::Columns<Epilogue<T>, kCount>::Columns;
  __device__ __forceinline__ auto ahead(std::int64_t row) const {
    return product::Columns<Epilogue<T>, kCount>::ahead(this->epilogue.image(row), row);
  }
};

}  // namespace noisefloor::gemm
