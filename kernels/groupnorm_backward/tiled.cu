// groupnorm_backward, tiled: passes that read whole rows by 16-byte accesses, over the slabs of rows of
// kernels/groupnorm/slabs.h.
//
// 1. sums_kernel: dv and dv x of each channel, added over a slab; from the last slab on.
// 2. group_kernel: slabs added, a warp per channel; dscale and dshift; what dx takes of each group.
// 3. dx_kernel, for which dv is computed again; from the first slab on, which L2 still has. 4. parameters_kernel:
// images added.
//
// Better than naive: every sector fetched is used, slabs fill the GPU whatever n * groups is, and sums are not a block
// reduction a channel.
//
// Requires: nothing; fp32, bf16 and fp16.
// Bound: memory, two reads of x and dy and one write; small problems: four launches.
// Numerics: fp32; all sums in fixed order.
// Source: original.
#include "kernels/groupnorm_backward/slabs.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

SlabPlan plan_of(const Problem& p, DType dtype, int sm_count) {
  return groupnorm::plan_slabs(forward_of(p), groupnorm::lanes_of(p.channels, dtype),
                               sm_count * 9 / 8);  // nine blocks an SM, thrice three
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kSlabThreads, 3) sums_kernel(Problem p, Tensors t, SlabPlan plan, Work work) {
  __shared__ float shared[2][kSlabThreads * kLanes];
  static_assert(sizeof(shared) <= 16 * 1024);
  ptx::griddepcontrol_wait();
  const Slab own;
  SlabPosition at = groupnorm::slab_position(p.hw, plan, kLanes);
  at.first_row = own.image * p.hw + own.slab * plan.slab_rows;
  at.rows = min(plan.slab_rows, p.hw - own.slab * plan.slab_rows);
  float sum[kLanes] = {}, sum_x[kLanes] = {};
  if (at.channel < p.channels) {
    const Channels<T, kLanes> channels(p, t, own.image, at.channel);
    each_row<T, kLanes>(p, t, at, plan.tile_rows, [&](std::int64_t, const Row<T, kLanes>& row) {
      float x[kLanes], dv[kLanes];
      channels.take(row, x, dv);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sum[i] += dv[i];
        sum_x[i] += dv[i] * x[i];
      }
    });
  }
  ptx::griddepcontrol_launch_dependents();
  // [tile_rows][lane][tile_columns], so that neighbouring threads write neighbouring words.
  const int column = static_cast<int>(threadIdx.x) % plan.tile_columns, stride = plan.tile_columns * kLanes;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    shared[0][at.row * stride + i * plan.tile_columns + column] = sum[i];
    shared[1][at.row * stride + i * plan.tile_columns + column] = sum_x[i];
  }
  __syncthreads();
  if (at.row != 0 || at.channel >= p.channels) return;
  float* const partial = work.partials + (own.image * plan.slabs + own.slab) * 2 * p.channels + at.channel;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    float total = 0, total_x = 0;
    for (int row = 0; row < plan.tile_rows; ++row) {
      total += shared[0][row * stride + i * plan.tile_columns + column];
      total_x += shared[1][row * stride + i * plan.tile_columns + column];
    }
    partial[i] = total;
    partial[p.channels + i] = total_x;
  }
}

}  // namespace

std::size_t tiled_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return Work::floats(p, plan_of(p, dtype, device.sm_count)) * sizeof(float);
}

Status launch_tiled(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                    const LaunchContext& context) {
  const Tensors t = unpacked(p, dtype, tensors);
  const SlabPlan plan = plan_of(p, dtype, context.device->sm_count);
  const auto launch = [&]<class T, int kLanes>() {
    return launch_slabs<T, kLanes>(p, t, plan, scratch, context, [&](const Work& work) {
      return launch_kernel("groupnorm_backward sums_kernel", sums_kernel<T, kLanes>,
                           slab_shape(p, plan, plan.threads(), context), context.stream, p, t, plan, work);
    });
  };
  return with_type(dtype, [&]<class T>(T) {
    return groupnorm::lanes_of(p.channels, dtype) == 1 ? launch.template operator()<T, 1>()
                                                       : launch.template operator()<T, kVectorLanes<T>>();
  });
}

}  // namespace noisefloor::groupnorm_backward
