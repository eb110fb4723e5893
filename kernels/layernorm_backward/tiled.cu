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
#include "kernels/layernorm_backward/rows.cuh"

namespace noisefloor::layernorm_backward {

std::size_t tiled_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  return partial_bytes(p, slabs_of(p, device.sm_count).count);
}

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  auto* const partials = p.sums() ? static_cast<float*>(scratch.workspace) : nullptr;
  const Slabs slabs = slabs_of(p, context.device->sm_count);
  return with_type(dtype, [&]<class T>(T) {
    const Status status = launch_rows<T, true>(p, t, slabs, partials, context);
    return status.ok() ? launch_images<T>(p, t, slabs.count, partials, context) : status;
  });
}

}  // namespace noisefloor::layernorm_backward
