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
#include "kernels/core/cuda_status.h"
#include "kernels/groupnorm/launchers.h"
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
  auto* partials = static_cast<float*>(scratch.workspace);
  if (partials == nullptr && slab_workspace_bytes(p, plan) > 0)
    return failure(StatusCode::invalid_argument, "groupnorm: no workspace");
  float* coefficients = slab_coefficients(p, t, plan, scratch.workspace);
  const dim3 grid(static_cast<unsigned>(plan.slabs), static_cast<unsigned>(plan.tiles), static_cast<unsigned>(p.n));
  const auto threads = static_cast<unsigned>(plan.threads());
  const auto groups = static_cast<unsigned>(p.n * p.groups);
  if (!p.given()) {
    statistics_kernel<T, kLanes><<<grid, threads, 0, context.stream>>>(p, static_cast<const T*>(t.x), plan, partials);
    if (const Status status = launch_status("groupnorm tiled statistics"); !status.ok()) return status;
  }
  finish_kernel<T><<<groups, kFinishThreads, 0, context.stream>>>(
      p, t, p.given() ? given_partials(p, t) : own_partials(p, plan, partials), coefficients);
  if (const Status status = launch_status("groupnorm tiled finish"); !status.ok() || p.coefficients) return status;
  return launch_normalise<T, kLanes>("groupnorm tiled normalise", p, t, plan, kSlabThreads, coefficients, context);
}

int lanes_of(const Problem& p, DType dtype) {
  const int lanes = 16 / static_cast<int>(size_of(dtype));
  return p.channels % lanes == 0 ? lanes : 1;
}

template <class T>
Status launch_lanes(const Problem& p, DType dtype, const Tensors& t, const Scratch& s, const LaunchContext& context) {
  return lanes_of(p, dtype) == 1 ? launch<T, 1>(p, t, s, context) : launch<T, kVectorLanes<T>>(p, t, s, context);
}

}  // namespace

std::size_t tiled_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return slab_workspace_bytes(p, plan_slabs(p, lanes_of(p, dtype), device.sm_count));
}

Status launch_tiled(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                    const LaunchContext& context) {
  const Tensors t = unpacked(p, dtype, tensors);
  switch (dtype) {
    case DType::bf16:
      return launch_lanes<__nv_bfloat16>(p, dtype, t, scratch, context);
    case DType::fp16:
      return launch_lanes<__half>(p, dtype, t, scratch, context);
    default:
      return launch_lanes<float>(p, dtype, t, scratch, context);
  }
}

}  // namespace noisefloor::groupnorm
