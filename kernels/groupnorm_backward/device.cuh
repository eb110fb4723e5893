// What the GPU variants share: xh and dv of an element, and what becomes of an image's sums.
#pragma once

#include "kernels/device/norm_gradients.cuh"
#include "kernels/groupnorm_backward/groupnorm_backward.h"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::groupnorm_backward {

__host__ __device__ inline NormGradients gradients_of(const Problem& p, const Tensors& t) {
  return {t.gamma, t.beta, t.scale, t.dscale, t.dshift, p.channels, p.scale_shift_stride(), p.fp32_affine};
}

// Of a channel of an image: xh = (x - mean) rstd, v = xh a + b.
struct Channel {
  float mean, rstd, a, b;
};

template <class T>
__device__ __forceinline__ Channel channel_of(const Problem& p, const Tensors& t, float mean, float rstd,
                                              std::int64_t image, std::int64_t c) {
  const float gamma = parameter<T>(t.gamma, c, 1.0f, p.fp32_affine),
              beta = parameter<T>(t.beta, c, 0.0f, p.fp32_affine);
  if (p.fusion != Fusion::silu_scale_shift) return {mean, rstd, gamma, beta};
  const std::int64_t at = image * p.scale_shift_stride() + c;
  const float scaled = 1.0f + to_float(static_cast<const T*>(t.scale)[at]);
  return {mean, rstd, gamma * scaled, beta * scaled + to_float(static_cast<const T*>(t.shift)[at])};
}

// dy silu'(v). exp(-v) overflows to infinity below v = -88, where silu' is 0.
__device__ __forceinline__ float silu_gradient(float dy, float v) {
  const float s = __fdividef(1.0f, 1.0f + __expf(-v));
  return dy * s * (1.0f + v * (1.0f - s));
}

// dv, of half v twice that: silu'(2 h) = (1 + t) (1 + h (1 - t)) / 2 with t = tanh(h). fp16 has more digits than the
// instruction for tanh.
template <class T, bool kActivate>
__device__ __forceinline__ float gradient(float dy, float h) {
  if constexpr (!kActivate) return dy;
  float t;
  if constexpr (std::is_same_v<T, __half>)
    t = 1.0f - 2.0f * ptx::rcp_approx(1.0f + ptx::exp2_approx(2.88539008f * h));
  else
    t = ptx::tanh_approx(h);
  const float slope = h - h * t, raised = dy * t + dy;
  return raised * slope + raised;
}

// Leaves xh in the place of x, and dv in that of dy.
__device__ __forceinline__ void to_xh_and_dv(const Problem& p, const Channel& channel, float& x, float& dy) {
  x = (x - channel.mean) * channel.rstd;
  if (p.fusion != Fusion::none) dy = silu_gradient(dy, x * channel.a + channel.b);
}

}  // namespace noisefloor::groupnorm_backward
