// layernorm_backward, tiled: a block takes a slab of rows of an image, one row after the other. A thread has the same
// one or two vectors of 16 bytes of every row: it holds x and dy in registers from the row's two reductions to dx, and
// their sums over the slab. Then a block per image and 32 channels adds slabs, and a thread per channel the images.
//
// Better than naive: x and dy are read once, by 16-byte accesses, and sums over rows need no pass of their own.
//
// Threads: as many as vectors, or half of them, up to 512. Shared memory: 32 pairs of floats for each reduction.
//
// Bound: memory; limited by two barriers a row, which blocks of the same SM cover.
//
// Requires: channels that are a multiple of 16 bytes, and at most 16 KiB; fewer than 2^31 images * channels.
// Workspace, fp32: slabs' sums [images, slabs, 2, channels], sums [images, 2, channels].
// Numerics: fp32; deviations from the mean are squared; all sums in fixed order.
// Source: original.
#include <algorithm>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/norm_gradients.cuh"
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kBlocksOfSm = 8;           // at least, where there are as many rows
constexpr std::int64_t kFewestRows = 4;  // of a slab, where an image has them: each slab leaves two rows of sums

struct Slabs {
  std::int64_t rows, count;  // of a slab, of an image
};
Slabs slabs_of(const Problem& p, int sm_count) {
  const std::int64_t of_image = p.rows_per_image();
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocksOfSm * sm_count / p.images);
  const std::int64_t rows = std::max((of_image + wanted - 1) / wanted, std::min(kFewestRows, of_image));
  return {rows, (of_image + rows - 1) / rows};
}

// The sums over a block, to all threads, in fixed order. `shared`: one pair a warp; free again behind the next barrier.
__device__ __forceinline__ float2 block_sums(float2 value, float2* shared) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    value.x += __shfl_xor_sync(0xffffffffu, value.x, mask);
    value.y += __shfl_xor_sync(0xffffffffu, value.y, mask);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float2 sum = shared[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) {
    sum.x += shared[warp].x;
    sum.y += shared[warp].y;
  }
  return sum;
}

template <class T, int kPer>
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
        sum[j][i] += dy[j][i];
        sum_xh[j][i] += dy[j][i] * xh;
      }
      store_vector<T>(static_cast<T*>(t.dx) + first + channel_of(j), dx);
    }
  }
  if (partials == nullptr) return;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    if (channel_of(j) >= p.channels) continue;
    float* const partial = partials + blockIdx.x * 2 * p.channels + channel_of(j);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      partial[i] = sum[j][i];
      partial[p.channels + i] = sum_xh[j][i];
    }
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
      sum.x += partial[0];
      sum.y += partial[p.channels];
    }
  }
  shared[part][column] = sum;
  __syncthreads();
  if (part != 0 || c >= p.channels) return;
  for (int other = 1; other < kParts; ++other) {
    sum.x += shared[other][column].x;
    sum.y += shared[other][column].y;
  }
  store_sums<T>({t.gamma, t.beta, t.scale, t.dscale, t.dshift, p.channels, p.channels}, image, c, sum.x, sum.y, sums);
}

template <class T>
Status launch(const Problem& p, const Tensors& t, const Slabs& slabs, float* partials, float* sums,
              const LaunchContext& context) {
  const auto vectors = static_cast<unsigned>(p.channels / kVectorLanes<T>);
  const bool two = vectors > kMaxThreads / 2;
  const unsigned threads = ((two ? (vectors + 1) / 2 : vectors) + 31) / 32 * 32;
  const Status rows = launch_kernel("layernorm_backward rows_kernel", two ? rows_kernel<T, 2> : rows_kernel<T, 1>,
                                    {.grid = static_cast<unsigned>(p.images * slabs.count), .block = threads},
                                    context.stream, p, t, slabs, partials, static_cast<float>(p.residual_scale));
  if (!rows.ok() || !p.sums()) return rows;
  const auto blocks = static_cast<unsigned>(p.images * ((p.channels + kColumns - 1) / kColumns));
  return launch_kernel("layernorm_backward image_kernel", image_kernel<T>, {.grid = blocks, .block = kColumns * kParts},
                       context.stream, p, t, slabs.count, partials, sums);
}

}  // namespace

std::size_t tiled_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  if (!p.sums()) return 0;
  return static_cast<std::size_t>((slabs_of(p, device.sm_count).count + 1) * p.images * 2 * p.channels) * sizeof(float);
}

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  auto* const partials = p.sums() ? static_cast<float*>(scratch.workspace) : nullptr;
  if (p.sums() && partials == nullptr) return failure(StatusCode::invalid_argument, "layernorm_backward: no workspace");
  const Slabs slabs = slabs_of(p, context.device->sm_count);
  float* const sums = partials == nullptr ? nullptr : partials + slabs.count * p.images * 2 * p.channels;
  const Status status = with_type(dtype, [&]<class T>(T) { return launch<T>(p, t, slabs, partials, sums, context); });
  return status.ok() && p.affine ? launch_parameters("layernorm_backward parameters_kernel", p.images, p.channels, sums,
                                                     t.dgamma, t.dbeta, context)
                                 : status;
}

}  // namespace noisefloor::layernorm_backward
