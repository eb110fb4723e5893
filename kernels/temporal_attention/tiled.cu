// temporal_attention, tiled: a warp per pixel and head, whose lane i is frame i and holds its query's whole row of the
// softmax in registers. The head goes by in slabs of 32 elements through shared memory: queries and keys for the
// logits, then values for the output, which leaves through the same memory so that stores are coalesced.
//
// Better than naive: every key and value is read once per pixel and head instead of once per query; no shuffles, no
// online rescaling.
//
// Requires: nothing beyond grid limits; any layout, any head size up to 256. With fewer than 32 frames lanes idle.
// Bound: memory; expected limiter: shared-memory reads and FMAs, 2 * frames per element and lane.
// Numerics: fp32, one FMA chain over the head and one over the frames.
// Source: original.
#include <cfloat>

#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/temporal_attention/temporal_attention.h"

namespace noisefloor::temporal_attention {
namespace {

constexpr int kThreads = 32 * static_cast<int>(kTiledUnits);
constexpr int kSlab = 32;  // elements of the head
constexpr int kFrames = static_cast<int>(kMaxFrames);
static_assert(kFrames == 32, "a lane per frame");

struct WarpTile {
  float left[kFrames][kSlab + 1];   // queries, then outputs
  float right[kFrames][kSlab + 1];  // keys, then values
};
static_assert(sizeof(WarpTile) * kTiledUnits == 33 * 1024);

// Elements [d0, d0 + 32) of all frames of a unit: lane l of the warp moves element d0 + l.
template <class T>
__device__ __forceinline__ void load_slab(float (&tile)[kFrames][kSlab + 1], const T* from, std::int64_t frame_stride,
                                          std::int64_t element_stride, int frames, int d, int dim) {
  for (int f = 0; f < frames; ++f)
    tile[f][threadIdx.x % 32] = d < dim ? to_float(from[f * frame_stride + d * element_stride]) : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    temporal_attention_tiled(const Shape shape, const T* __restrict__ q, const T* __restrict__ k,
                             const T* __restrict__ v, T* __restrict__ out) {
  __shared__ WarpTile tiles[kThreads / 32];
  WarpTile& tile = tiles[threadIdx.x / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t unit = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (unit >= shape.outer * shape.inner * shape.heads) return;
  const std::int64_t head = unit % shape.heads;
  const std::int64_t inner = unit / shape.heads % shape.inner;
  const std::int64_t outer = unit / shape.heads / shape.inner;
  const int frames = static_cast<int>(shape.seq_q), dim = static_cast<int>(shape.dim);
  const T* const queries = q + shape.q.at(outer, inner, 0, head);
  const T* const keys = k + shape.k.at(outer, inner, 0, head);
  const T* const values = v + shape.v.at(outer, inner, 0, head);

  float weights[kFrames] = {};
  for (int d0 = 0; d0 < dim; d0 += kSlab) {
    load_slab(tile.left, queries, shape.q.seq, shape.q.element, frames, d0 + lane, dim);
    load_slab(tile.right, keys, shape.k.seq, shape.k.element, frames, d0 + lane, dim);
    __syncwarp();
    for (int d = 0; d < kSlab; ++d) {
      const float query = tile.left[lane][d];  // of lanes past the last frame: whatever is there, and not used
#pragma unroll
      for (int j = 0; j < kFrames; ++j)
        if (j < frames) weights[j] = fmaf(query, tile.right[j][d], weights[j]);
    }
    __syncwarp();
  }

  float highest = -FLT_MAX, sum = 0;
#pragma unroll
  for (int j = 0; j < kFrames; ++j) {
    weights[j] *= shape.scale;
    if (j < frames) highest = fmaxf(highest, weights[j]);
  }
#pragma unroll
  for (int j = 0; j < kFrames; ++j) {
    weights[j] = j < frames ? __expf(weights[j] - highest) : 0.0f;
    sum += weights[j];
  }
  const float scale = 1.0f / sum;

  T* const outputs = out + shape.out.at(outer, inner, 0, head);
  for (int d0 = 0; d0 < dim; d0 += kSlab) {
    load_slab(tile.right, values, shape.v.seq, shape.v.element, frames, d0 + lane, dim);
    __syncwarp();
    for (int d = 0; d < kSlab; ++d) {
      float value = 0;
#pragma unroll
      for (int j = 0; j < kFrames; ++j)
        if (j < frames) value = fmaf(weights[j], tile.right[j][d], value);
      tile.left[lane][d] = value * scale;
    }
    __syncwarp();
    if (d0 + lane < dim)
      for (int f = 0; f < frames; ++f) outputs[f * shape.out.seq + d0 + lane] = from_float<T>(tile.left[f][lane]);
    __syncwarp();
  }
}

}  // namespace

Status launch_tiled(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(t); !status.ok()) return status;
  return with_type(dtype, [&]<class T>(T) {
    const Shape shape = problem.shape();
    const auto blocks = static_cast<unsigned>((problem.units() + kTiledUnits - 1) / kTiledUnits);
    return launch_kernel("temporal_attention_tiled", temporal_attention_tiled<T>, {.grid = blocks, .block = kThreads},
                         context.stream, shape, static_cast<const T*>(t.q), static_cast<const T*>(t.k),
                         static_cast<const T*>(t.v), static_cast<T*>(t.out));
  });
}

}  // namespace noisefloor::temporal_attention
