// The norm in front of a convolution, for rungs that gather numbers one by one. Device code only.
#pragma once

#include "kernels/convolution/convolution.h"
#include "kernels/device/activations.cuh"
#include "kernels/device/vector.cuh"

namespace noisefloor::convolution {

// A channel's input, normed and rounded to T. `coefficients` are its image's: [2, cin], multipliers, then addends.
template <class T>
__device__ __forceinline__ float normed(const Convolution& c, const float* coefficients, int channel, float in) {
  in = fmaf(in, coefficients[channel], coefficients[c.cin + channel]);
  return to_float(from_float<T>(c.norm == Norm::affine_silu ? silu<T>(in) : in));
}

}  // namespace noisefloor::convolution
