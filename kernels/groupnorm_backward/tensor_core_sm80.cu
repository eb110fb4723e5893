// groupnorm_backward, tensor cores: as tiled, with the sums of dv and dv x as products with ones
// (kernels/device/channel_mma.cuh).
//
// What differs from tiled: of eight channels of two rows, 64 splits and 8 mma take the place of 32 additions, and the
// block's reduction is of eight warps.
//
// Requires: bf16 or fp16; channels divisible by 8; an even number of channels per group.
// Bound: memory, two reads of x and dy and one write.
// Numerics: numbers of 16 bits are summed, in fp32; all sums in fixed order.
// Source: original.
#include "kernels/device/channel_mma.cuh"
#include "kernels/groupnorm_backward/slabs.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

static_assert(kSlabThreads == kChannelThreads);

SlabPlan mma_plan(const Problem& p, int sm_count) {
  return groupnorm::plan_slabs(forward_of(p), 8, sm_count, kChannelColumns);
}

template <class T>
__global__ void __launch_bounds__(kSlabThreads) mma_sums_kernel(Problem p, Tensors t, SlabPlan plan, Work work) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t first = blockIdx.x * plan.slab_rows, channel = channel_of_lane(p.channels);
  const Channels<T, 8> channels(p, t, blockIdx.z, channel);
  add_channels_by_mma(
      min(plan.slab_rows, p.hw - first), p.channels,
      [&](std::int64_t row, float(&dv)[8], float(&dv_x)[8]) {
        channels.take(fetch<T, 8>(t, (blockIdx.z * p.hw + first + row) * p.channels + channel), dv_x, dv);
#pragma unroll
        for (int i = 0; i < 8; ++i) dv_x[i] *= dv[i];
      },
      work.partials + (blockIdx.z * plan.slabs + blockIdx.x) * 2 * p.channels);
}

}  // namespace

std::size_t tensor_core_sm80_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  return Work::floats(p, mma_plan(p, device.sm_count)) * sizeof(float);
}

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                               const LaunchContext& context) {
  const Tensors t = unpacked(p, dtype, tensors);
  const SlabPlan plan = mma_plan(p, context.device->sm_count);
  return with_half_type(dtype, [&]<class T>(T) {
    return launch_slabs<T, 8>(p, t, plan, scratch, context, [&](const Work& work) {
      return launch_kernel("groupnorm_backward mma_sums_kernel", mma_sums_kernel<T>,
                           slab_shape(p, plan, kSlabThreads, context), context.stream, p, t, plan, work);
    });
  });
}

}  // namespace noisefloor::groupnorm_backward
