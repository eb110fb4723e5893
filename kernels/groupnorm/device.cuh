// What the GPU variants share: SiLU, and the one multiply-add per element that the op comes down
// to.
#pragma once

#include "kernels/device/vector.cuh"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::groupnorm {

// exp(-v) overflows to infinity below v = -88, where the quotient is the limit, -0.
__device__ __forceinline__ float silu(float v) {
  return __fdividef(v, 1.0f + __expf(-v));
}

// silu(2 h) = h + h tanh(h): one special function and one multiply-add. Off by 1e-5 at most: the instruction's error,
// 2^-11 of tanh, fades as tanh saturates.
__device__ __forceinline__ float silu_of_twice(float h) {
  return h * ptx::tanh_approx(h) + h;
}

// Element `channel` of gamma or beta.
template <class T>
__device__ __forceinline__ float affine(bool fp32, const void* base, std::int64_t channel) {
  return fp32 ? static_cast<const float*>(base)[channel] : to_float(static_cast<const T*>(base)[channel]);
}

// y = fusion(x * a + b): the coefficients of one channel of one image. `row` is image * scale_shift_stride + channel.
template <class T>
__device__ __forceinline__ float2 channel_coefficients(const Problem& p, const Tensors& t, float mean, float rstd,
                                                       std::int64_t channel, std::int64_t row) {
  float a = rstd * affine<T>(p.fp32_affine, t.gamma, channel);
  float b = affine<T>(p.fp32_affine, t.beta, channel) - mean * a;
  if (t.scale != nullptr) {
    const float scale = 1.0f + to_float(static_cast<const T*>(t.scale)[row]);
    a *= scale;
    b = b * scale + to_float(static_cast<const T*>(t.shift)[row]);
  }
  return {a, b};
}

}  // namespace noisefloor::groupnorm
