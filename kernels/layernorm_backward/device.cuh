// What the GPU variants share: what becomes of an image's sums, and the last step, which adds images.
#pragma once

#include "kernels/core/cuda_status.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {

// Element i of a parameter, or what stands in its place where there is none.
template <class T>
__device__ __forceinline__ float parameter(const void* base, std::int64_t i, float absent) {
  return base == nullptr ? absent : to_float(static_cast<const T*>(base)[i]);
}

// Of dy and dy xh, summed over an image's rows: dscale and dshift, and sums [images, 2, channels] times 1 + scale.
template <class T>
__device__ __forceinline__ void store_sums(const Problem& p, const Tensors& t, std::int64_t image, std::int64_t c,
                                           float sum, float sum_xh, float* sums) {
  const std::int64_t at = image * p.channels + c;
  const float scaled = 1.0f + parameter<T>(t.scale, at, 0.0f);
  sums[image * 2 * p.channels + c] = scaled * sum;
  sums[(image * 2 + 1) * p.channels + c] = scaled * sum_xh;
  if (t.scale == nullptr) return;
  const float gamma = parameter<T>(t.gamma, c, 1.0f), beta = parameter<T>(t.beta, c, 0.0f);
  static_cast<T*>(t.dscale)[at] = from_float<T>(gamma * sum_xh + beta * sum);
  static_cast<T*>(t.dshift)[at] = from_float<T>(sum);
}

namespace {  // each file that includes this is compiled for architectures of its own

constexpr int kParameterThreads = 64;

// One thread per channel adds the images' sums, in their order.
__global__ void __launch_bounds__(kParameterThreads)
    parameters_kernel(std::int64_t images, std::int64_t channels, const float* sums, float* dgamma, float* dbeta) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kParameterThreads + threadIdx.x;
  if (c >= channels) return;
  float sum = 0, sum_xh = 0;
#pragma unroll 8
  for (std::int64_t i = 0; i < images; ++i) {
    sum += sums[i * 2 * channels + c];
    sum_xh += sums[(i * 2 + 1) * channels + c];
  }
  dbeta[c] = sum;
  dgamma[c] = sum_xh;
}

inline Status launch_parameters(const Problem& p, const Tensors& t, const float* sums, const LaunchContext& context) {
  return launch_kernel("layernorm_backward parameters_kernel", parameters_kernel,
                       {.grid = static_cast<unsigned>((p.channels + kParameterThreads - 1) / kParameterThreads),
                        .block = kParameterThreads},
                       context.stream, p.images, p.channels, sums, t.dgamma, t.dbeta);
}

}  // namespace
}  // namespace noisefloor::layernorm_backward
