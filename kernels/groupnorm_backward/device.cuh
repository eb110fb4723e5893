// What the GPU variants share: xh and dv of an element, and the last step, which adds images.
#pragma once

#include "kernels/core/cuda_status.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {

// Of a channel of an image: xh = (x - mean) rstd, v = xh a + b; scaled: 1 + scale.
struct Channel {
  float mean, rstd, a, b, scaled;
};

template <class T>
__device__ __forceinline__ Channel channel_of(const Problem& p, const Tensors& t, float mean, float rstd,
                                              std::int64_t image, std::int64_t c) {
  const float gamma = to_float(static_cast<const T*>(t.gamma)[c]), beta = to_float(static_cast<const T*>(t.beta)[c]);
  if (p.fusion != Fusion::silu_scale_shift) return {mean, rstd, gamma, beta, 1.0f};
  const std::int64_t at = image * p.scale_shift_stride() + c;
  const float scaled = 1.0f + to_float(static_cast<const T*>(t.scale)[at]);
  return {mean, rstd, gamma * scaled, beta * scaled + to_float(static_cast<const T*>(t.shift)[at]), scaled};
}

// dy silu'(v). exp(-v) overflows to infinity below v = -88, where silu' is 0.
__device__ __forceinline__ float silu_gradient(float dy, float v) {
  const float s = __fdividef(1.0f, 1.0f + __expf(-v));
  return dy * s * (1.0f + v * (1.0f - s));
}

// Leaves xh in the place of x, and dv in that of dy.
__device__ __forceinline__ void to_xh_and_dv(const Problem& p, const Channel& channel, float& x, float& dy) {
  x = (x - channel.mean) * channel.rstd;
  if (p.fusion != Fusion::none) dy = silu_gradient(dy, x * channel.a + channel.b);
}

// The sums over an image's pixels of dv and dv xh, as dscale and dshift, and times 1 + scale in sums [n, 2, channels].
template <class T>
__device__ __forceinline__ void store_sums(const Problem& p, const Tensors& t, std::int64_t image, std::int64_t c,
                                           float scaled, float sum, float sum_xh, float* sums) {
  sums[image * 2 * p.channels + c] = scaled * sum;
  sums[(image * 2 + 1) * p.channels + c] = scaled * sum_xh;
  if (p.fusion != Fusion::silu_scale_shift) return;
  const std::int64_t at = image * p.scale_shift_stride() + c;
  const float gamma = to_float(static_cast<const T*>(t.gamma)[c]), beta = to_float(static_cast<const T*>(t.beta)[c]);
  static_cast<T*>(t.dscale)[at] = from_float<T>(gamma * sum_xh + beta * sum);
  static_cast<T*>(t.dshift)[at] = from_float<T>(sum);
}

namespace {  // each file that includes this is compiled for architectures of its own

constexpr int kParameterThreads = 64;

// One thread per channel adds the images' sums, in their order.
__global__ void __launch_bounds__(kParameterThreads)
    parameters_kernel(std::int64_t n, std::int64_t channels, const float* sums, float* dgamma, float* dbeta) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kParameterThreads + threadIdx.x;
  if (c >= channels) return;
  float sum = 0, sum_xh = 0;
#pragma unroll 8
  for (std::int64_t i = 0; i < n; ++i) {
    sum += sums[i * 2 * channels + c];
    sum_xh += sums[(i * 2 + 1) * channels + c];
  }
  dbeta[c] = sum;
  dgamma[c] = sum_xh;
}

inline Status launch_parameters(const Problem& p, const Tensors& t, const float* sums, const LaunchContext& context) {
  return launch_kernel("groupnorm_backward parameters_kernel", parameters_kernel,
                       {.grid = static_cast<unsigned>((p.channels + kParameterThreads - 1) / kParameterThreads),
                        .block = kParameterThreads},
                       context.stream, p.n, p.channels, sums, t.dgamma, t.dbeta);
}

}  // namespace
}  // namespace noisefloor::groupnorm_backward
