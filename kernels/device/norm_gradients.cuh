// What the backward passes of norms do with the sums of an image's pixels or rows: the gradients of scale and shift,
// and, added over images in a last launch, of gamma and beta. Device code and its launch.
#pragma once

#include <cstdint>

#include "kernels/device/block_sum.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor {

// Element i of a parameter, T or fp32, or what stands in its place where there is none.
template <class T>
__device__ __forceinline__ float parameter(const void* base, std::int64_t i, float absent, bool fp32 = false) {
  if (base == nullptr) return absent;
  return fp32 ? static_cast<const float*>(base)[i] : to_float(static_cast<const T*>(base)[i]);
}

// The norm's parameters (null where it has none) and where their gradients go.
struct NormGradients {
  const void *gamma, *beta;  // T [channels], or fp32
  const void* scale;         // T, rows of images `stride` elements apart, as are those of its and shift's gradients
  void *dscale, *dshift;
  std::int64_t channels, stride;
  bool fp32_affine = false;
};

// Of dv and dv xh, summed over an image: dscale and dshift, and sums [images, 2, channels] times 1 + scale.
template <class T>
__device__ __forceinline__ void store_sums(const NormGradients& g, std::int64_t image, std::int64_t c, float sum,
                                           float sum_xh, float* sums) {
  const std::int64_t at = image * g.stride + c;
  const float scaled = 1.0f + parameter<T>(g.scale, at, 0.0f);
  sums[image * 2 * g.channels + c] = scaled * sum;
  sums[(image * 2 + 1) * g.channels + c] = scaled * sum_xh;
  if (g.scale == nullptr) return;
  const float gamma = parameter<T>(g.gamma, c, 1.0f, g.fp32_affine),
              beta = parameter<T>(g.beta, c, 0.0f, g.fp32_affine);
  static_cast<T*>(g.dscale)[at] = from_float<T>(gamma * sum_xh + beta * sum);
  static_cast<T*>(g.dshift)[at] = from_float<T>(sum);
}

namespace {  // each file that includes this is compiled for architectures of its own

// Eight columns are a sector of 32 bytes; 64 parts leave a thread of 512 images eight loads, all under way at once.
constexpr int kParameterColumns = 8, kParameterParts = 64;
constexpr int kParameterThreads = kParameterColumns * kParameterParts;

// Thread (column, part) adds every kParameterParts-th image of its channel; then warps their parts, then one the
// warps'.
__global__ void __launch_bounds__(kParameterThreads)
    parameters_kernel(std::int64_t images, std::int64_t channels, const float* sums, float* dgamma, float* dbeta) {
  __shared__ float2 shared[kParameterThreads / 32][kParameterColumns];
  const int column = static_cast<int>(threadIdx.x) % kParameterColumns;
  const int part = static_cast<int>(threadIdx.x) / kParameterColumns;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kParameterColumns + column;
  ptx::griddepcontrol_wait();
  float2 sum{0, 0};
  if (c < channels) {
#pragma unroll 8
    for (std::int64_t i = part; i < images; i += kParameterParts) {
      sum.x += sums[i * 2 * channels + c];
      sum.y += sums[(i * 2 + 1) * channels + c];
    }
  }
  ptx::griddepcontrol_launch_dependents();
#pragma unroll
  for (int lane = kParameterColumns; lane < 32; lane *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, lane);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, lane);
  }
  if (threadIdx.x % 32 < kParameterColumns) shared[threadIdx.x / 32][column] = sum;
  __syncthreads();
  if (part != 0 || c >= channels) return;
#pragma unroll
  for (int warp = 1; warp < kParameterThreads / 32; ++warp) sum += shared[warp][column];
  dbeta[c] = sum.x;
  dgamma[c] = sum.y;
}

// Behind the launches that left `before`.
inline Status launch_parameters(const Status& before, const char* name, std::int64_t images, std::int64_t channels,
                                const float* sums, float* dgamma, float* dbeta, const LaunchContext& context) {
  if (!before.ok() || dgamma == nullptr) return before;
  return launch_kernel(name, parameters_kernel,
                       {.grid = static_cast<unsigned>((channels + kParameterColumns - 1) / kParameterColumns),
                        .block = kParameterThreads,
                        .programmatic = context.programmatic_launch},
                       context.stream, images, channels, sums, dgamma, dbeta);
}

}  // namespace
}  // namespace noisefloor
