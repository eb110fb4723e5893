// What tiled and ptx_sm90a do with the sums that their blocks leave of an image's rows: add them, then the images'. And
// how both make sums.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/norm_gradients.cuh"
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {
namespace {  // each file that includes this is compiled for architectures of its own

// What a block leaves of neighbouring channels: partial [2, channels].
template <int kLanes>
__device__ __forceinline__ void store_partial(const float (&sum)[kLanes], const float (&sum_xh)[kLanes], float* partial,
                                              std::int64_t channels) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    partial[i] = sum[i];
    partial[channels + i] = sum_xh[i];
  }
}

constexpr int kColumns = 32, kParts = 8;

// Thread (column, part) adds every kParts-th slab of its channel; then part 0 adds the parts.
template <class T>
__global__ void __launch_bounds__(kColumns* kParts)
    image_kernel(const Problem p, const Tensors t, std::int64_t slabs, const float* partials, float* sums) {
  __shared__ float2 shared[kParts][kColumns];
  const std::int64_t tiles = (p.channels + kColumns - 1) / kColumns;
  const int column = static_cast<int>(threadIdx.x) % kColumns, part = static_cast<int>(threadIdx.x) / kColumns;
  const std::int64_t image = blockIdx.x / tiles, c = blockIdx.x % tiles * kColumns + column;
  float2 sum{0, 0};
  if (c < p.channels) {
#pragma unroll 4
    for (std::int64_t slab = part; slab < slabs; slab += kParts) {
      const float* const partial = partials + (image * slabs + slab) * 2 * p.channels + c;
      sum += {partial[0], partial[p.channels]};
    }
  }
  shared[part][column] = sum;
  __syncthreads();
  if (part != 0 || c >= p.channels) return;
  for (int other = 1; other < kParts; ++other) sum += shared[other][column];
  store_sums<T>({t.gamma, t.beta, t.scale, t.dscale, t.dshift, p.channels, p.channels}, image, c, sum.x, sum.y, sums);
}

// partials: [images, slabs, 2, channels]; behind them the images' sums, [images, 2, channels].
template <class T>
Status launch_images(const Problem& p, const Tensors& t, std::int64_t slabs, float* partials,
                     const LaunchContext& context) {
  if (!p.sums()) return success();
  float* const sums = partials + slabs * p.images * 2 * p.channels;
  const auto blocks = static_cast<unsigned>(p.images * ((p.channels + kColumns - 1) / kColumns));
  const Status status =
      launch_kernel("layernorm_backward image_kernel", image_kernel<T>, {.grid = blocks, .block = kColumns * kParts},
                    context.stream, p, t, slabs, static_cast<const float*>(partials), sums);
  return launch_parameters(status, "layernorm_backward parameters_kernel", p.images, p.channels, sums, t.dgamma,
                           t.dbeta, context);
}

inline std::size_t partial_bytes(const Problem& p, std::int64_t slabs) {
  return p.sums() ? static_cast<std::size_t>((slabs + 1) * p.images * 2 * p.channels) * sizeof(float) : 0;
}

}  // namespace
}  // namespace noisefloor::layernorm_backward
