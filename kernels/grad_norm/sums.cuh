// What the GPU variants share: squares, and what becomes of their sum.
#pragma once

#include "kernels/device/ordered_sums.cuh"
#include "kernels/grad_norm/grad_norm.h"

namespace noisefloor::grad_norm {

struct Squares : FlatInputs<1> {
  static constexpr int kUnroll = 4, kTerms = 4;

  Squares(const Problem& p, const Tensors& t) : FlatInputs<1>{{t.g}, vectors_of<float>(p.elements)} {}
  __device__ __forceinline__ void apply(std::uint32_t, const uint4 (&bits)[1], float (&terms)[4]) const {
    unpack_vector<float>(bits[0], terms);
#pragma unroll
    for (float& term : terms) term *= term;
  }
};

struct Finish {
  float clip, *norm, *scale;

  Finish(const Problem& p, const Tensors& t) : clip(static_cast<float>(p.clip)), norm(t.norm), scale(t.scale) {}
  __device__ __forceinline__ void operator()(float sum) const {
    *norm = sqrtf(sum);
    *scale = scale_of(sqrtf(sum), clip);
  }
};

}  // namespace noisefloor::grad_norm
