// groupnorm, tiled: two passes that read whole rows: moments of slabs of rows, merged in fixed order, then one
// multiply-add per element. Kernels: statistics, finish, normalise (slabs.cuh). With given statistics (slab_stats) the
// first kernel is left out, and x is read once; with `coefficients` the last; with `down_w` the last takes four pixels.
//
// Better than naive: a block reads its slab's rows from end to end with 16-byte accesses, so every sector fetched is
// used; the slabs fill the GPU whatever n * groups is; x is read twice instead of three times; no division stands in
// the inner loops.
//
// Requires: nothing; fp32, bf16 and fp16.
// Bound: memory, two reads and one write: 2/3 of copy bandwidth at n=32, hw=4096, channels=192, more where x stays in
// L2. Small problems: three launches.
// Numerics: fp32 sums of x - shift, the shift being the channel's value in the slab's first row; Chan's formula above
// the slab.
// Source: original.
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/groupnorm/slabs.cuh"

namespace noisefloor::groupnorm {
namespace {

template <class T, int kLanes>
__global__ void __launch_bounds__(kSlabThreads)
    statistics_kernel(Problem p, const T* x, SlabPlan plan, float* partials) {
  __shared__ float shared_sum[kSlabThreads * kLanes];
  __shared__ float shared_squares[kSlabThreads * kLanes];
  static_assert(sizeof(shared_sum) + sizeof(shared_squares) <= 16 * 1024);
  const SlabPosition at = slab_position(p.hw, plan, kLanes);
  float shift[kLanes], sum[kLanes] = {}, squares[kLanes] = {};
  if (at.channel < p.channels) {
    const T* slab = x + at.first_row * p.channels + at.channel;
    load_lanes<T>(slab, shift);
#pragma unroll 4
    for (std::int64_t s = at.row; s < at.rows; s += plan.tile_rows) {
      float value[kLanes];
      load_lanes<T>(slab + s * p.channels, value);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float d = value[i] - shift[i];
        sum[i] += d;
        squares[i] += d * d;
      }
    }
  }
  // [tile_rows][lane][tile_columns], so that neighbouring threads write neighbouring words.
  const int column = static_cast<int>(threadIdx.x) % plan.tile_columns;
  const int stride = plan.tile_columns * kLanes;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    shared_sum[at.row * stride + i * plan.tile_columns + column] = sum[i];
    shared_squares[at.row * stride + i * plan.tile_columns + column] = squares[i];
  }
  __syncthreads();
  if (at.row != 0 || at.channel >= p.channels) return;
  float* partial = partials + (blockIdx.z * plan.slabs + blockIdx.x) * 2 * p.channels + at.channel;
  const float scale = 1.0f / static_cast<float>(at.rows);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    float total = 0, total_squares = 0;
    for (int row = 0; row < plan.tile_rows; ++row) {
      total += shared_sum[row * stride + i * plan.tile_columns + column];
      total_squares += shared_squares[row * stride + i * plan.tile_columns + column];
    }
    const float offset = total * scale;
    partial[i] = shift[i] + offset;
    partial[p.channels + i] = fmaxf(total_squares - total * offset, 0.0f);
  }
}

template <class T, int kLanes>
Status launch(const Problem& p, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  const SlabPlan plan = plan_slabs(p, kLanes, context.device->sm_count);
  return launch_slabs<T, kLanes>("groupnorm tiled", p, t, plan, kSlabThreads, scratch, context,
                                 [&](dim3 grid, float* partials) {
                                   return launch_kernel("groupnorm statistics_kernel", statistics_kernel<T, kLanes>,
                                                        {.grid = grid, .block = static_cast<unsigned>(plan.threads())},
                                                        context.stream, p, static_cast<const T*>(t.x), plan, partials);
                                 });
}

}  // namespace

std::size_t tiled_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return slab_workspace_bytes(p, plan_slabs(p, lanes_of(p.channels, dtype), device.sm_count));
}

Status launch_tiled(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                    const LaunchContext& context) {
  const Tensors t = unpacked(p, dtype, tensors);
  return with_type(dtype, [&]<class T>(T) {
    return lanes_of(p.channels, dtype) == 1 ? launch<T, 1>(p, t, scratch, context)
                                            : launch<T, kVectorLanes<T>>(p, t, scratch, context);
  });
}

}  // namespace noisefloor::groupnorm
