// The kernel of tiled, whose statistics tensor_core_sm80 takes too.
#pragma once

#include <algorithm>

#include "kernels/layernorm_backward/images.cuh"

namespace noisefloor::layernorm_backward {
namespace {  // each file that includes this is compiled for architectures of its own

constexpr int kMaxThreads = 512;
constexpr int kBlocksOfSm = 8;           // at least, where there are as many rows
constexpr std::int64_t kFewestRows = 4;  // of a slab, where an image has them: each slab leaves two rows of sums

struct Slabs {
  std::int64_t rows, count;  // of a slab, of an image
};
// For `tiles` blocks of each slab.
Slabs slabs_of(const Problem& p, int sm_count, std::int64_t tiles = 1, std::int64_t fewest = kFewestRows) {
  const std::int64_t of_image = p.rows_per_image();
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocksOfSm * sm_count / (p.images * tiles));
  const std::int64_t rows = std::max((of_image + wanted - 1) / wanted, std::min(fewest, of_image));
  return {rows, (of_image + rows - 1) / rows};
}

// The sums over a block, to all threads, in fixed order. `shared`: one pair a warp; free again behind the next barrier.
__device__ __forceinline__ float2 block_sums(float2 value, float2* shared) {
  value = lane_sum(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float2 sum = shared[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) sum += shared[warp];
  return sum;
}

// kSums: of channels, to partials [images, slabs, 2, channels]; else mean and rstd of each row, to partials [rows].
template <class T, int kPer, bool kSums>
__global__ void __launch_bounds__(kMaxThreads)
    rows_kernel(const Problem p, const Tensors t, Slabs slabs, float* partials, float residual_scale) {
  constexpr int kLanes = kVectorLanes<T>;
  __shared__ float2 shared[2][32];
  const std::int64_t image = blockIdx.x / slabs.count;
  const std::int64_t begin = blockIdx.x % slabs.count * slabs.rows;
  const std::int64_t end = min(begin + slabs.rows, p.rows_per_image());
  const float inverse = 1.0f / static_cast<float>(p.channels);
  const auto channel_of = [&](int j) { return static_cast<std::int64_t>(threadIdx.x + j * blockDim.x) * kLanes; };

  float factor[kPer][kLanes], sum[kPer][kLanes] = {}, sum_xh[kPer][kLanes] = {};  // factor: gamma (1 + scale)
#pragma unroll
  for (int j = 0; j < kPer; ++j)
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t c = channel_of(j) + i;
      factor[j][i] = c < p.channels
                         ? parameter<T>(t.gamma, c, 1.0f) * (1.0f + parameter<T>(t.scale, image * p.channels + c, 0.0f))
                         : 0.0f;
    }

  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = (image * p.rows_per_image() + row) * p.channels;
    float x[kPer][kLanes] = {}, dy[kPer][kLanes] = {};
    float2 part{0, 0};
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      if (channel_of(j) < p.channels) {
        load_vector<T>(static_cast<const T*>(t.x) + first + channel_of(j), x[j]);
        load_vector<T>(static_cast<const T*>(t.dy) + first + channel_of(j), dy[j]);
      }
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        part.x += x[j][i];
        part.y += dy[j][i] * factor[j][i];
      }
    }
    const float2 sums = block_sums(part, shared[0]);
    const float mean = sums.x * inverse, mean_dh = sums.y * inverse;
    part = {0, 0};
#pragma unroll
    for (int j = 0; j < kPer; ++j)
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        x[j][i] = channel_of(j) < p.channels ? x[j][i] - mean : 0.0f;
        part.x += x[j][i] * x[j][i];
        part.y += dy[j][i] * factor[j][i] * x[j][i];
      }
    const float2 moments = block_sums(part, shared[1]);
    const float rstd = 1.0f / sqrtf(moments.x * inverse + static_cast<float>(p.eps));
    const float mean_dh_xh = moments.y * rstd * inverse;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      if (channel_of(j) >= p.channels) continue;
      float dx[kLanes], residual[kLanes] = {};
      if (t.residual != nullptr) load_vector<T>(static_cast<const T*>(t.residual) + first + channel_of(j), residual);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float xh = x[j][i] * rstd;
        dx[i] = rstd * (dy[j][i] * factor[j][i] - mean_dh - xh * mean_dh_xh) + residual_scale * residual[i];
        if constexpr (kSums) {
          sum[j][i] += dy[j][i];
          sum_xh[j][i] += dy[j][i] * xh;
        }
      }
      store_vector<T>(static_cast<T*>(t.dx) + first + channel_of(j), dx);
    }
    if (!kSums && partials != nullptr && threadIdx.x == 0)
      reinterpret_cast<float2*>(partials)[image * p.rows_per_image() + row] = {mean, rstd};
  }
  if constexpr (kSums) {
    if (partials == nullptr) return;
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (channel_of(j) < p.channels)
        store_partial(sum[j], sum_xh[j], partials + blockIdx.x * 2 * p.channels + channel_of(j), p.channels);
  }
}

template <class T, bool kSums>
Status launch_rows(const Problem& p, const Tensors& t, const Slabs& slabs, float* partials,
                   const LaunchContext& context) {
  const auto vectors = static_cast<unsigned>(p.channels / kVectorLanes<T>);
  const bool two = vectors > kMaxThreads / 2;
  const unsigned threads = ((two ? (vectors + 1) / 2 : vectors) + 31) / 32 * 32;
  return launch_kernel("layernorm_backward rows_kernel", two ? rows_kernel<T, 2, kSums> : rows_kernel<T, 1, kSums>,
                       {.grid = static_cast<unsigned>(p.images * slabs.count), .block = threads}, context.stream, p, t,
                       slabs, partials, static_cast<float>(p.residual_scale));
}

}  // namespace
}  // namespace noisefloor::layernorm_backward
