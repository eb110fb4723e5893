// layernorm_backward, tensor cores: dx by tiled's kernel, which leaves mean and rstd of each row; then the sums of dy
// and dy xh over rows as products with ones (kernels/device/channel_mma.cuh).
//
// What differs from tiled: the sums, for which x and dy are read again. README.md: why it does not win.
//
// Requires: bf16 or fp16; what tiled requires.
// Bound: memory, two reads of x and dy.
// Workspace, fp32: slabs' sums [images, slabs, 2, channels], sums [images, 2, channels], statistics [rows, 2].
// Numerics: dx as tiled; numbers of 16 bits are summed, in fp32; all sums in fixed order.
// Source: original.
#include "kernels/device/channel_mma.cuh"
#include "kernels/layernorm_backward/rows.cuh"

namespace noisefloor::layernorm_backward {
namespace {

constexpr std::int64_t kTile = kChannelColumns * 8;
std::int64_t tiles_of(const Problem& p) {
  return (p.channels + kTile - 1) / kTile;
}
// Of the sums: tiles of channels share the GPU with slabs.
Slabs sum_slabs(const Problem& p, int sm_count) {
  return slabs_of(p, sm_count, tiles_of(p), 1);
}

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    mma_sums_kernel(const Problem p, const Tensors t, Slabs slabs, const float2* statistics, float* partials) {
  const std::int64_t image = blockIdx.x / slabs.count, slab = blockIdx.x % slabs.count;
  const std::int64_t first = image * p.rows_per_image() + slab * slabs.rows, channel = channel_of_lane(p.channels);
  add_channels_by_mma(
      min(slabs.rows, p.rows_per_image() - slab * slabs.rows), p.channels,
      [&](std::int64_t row, float(&dy)[8], float(&dy_xh)[8]) {
        const std::int64_t place = (first + row) * p.channels + channel;
        const float2 own = statistics[first + row];
        load_vector<T>(static_cast<const T*>(t.x) + place, dy_xh);
        load_vector<T>(static_cast<const T*>(t.dy) + place, dy);
#pragma unroll
        for (int i = 0; i < 8; ++i) dy_xh[i] = (dy_xh[i] - own.x) * own.y * dy[i];
      },
      partials + static_cast<std::int64_t>(blockIdx.x) * 2 * p.channels);
}

}  // namespace

std::size_t tensor_core_sm80_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  if (!p.sums()) return 0;
  return aligned(partial_bytes(p, sum_slabs(p, device.sm_count).count)) +
         static_cast<std::size_t>(p.rows) * sizeof(float2);
}

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                               const LaunchContext& context) {
  auto* const partials = p.sums() ? static_cast<float*>(scratch.workspace) : nullptr;
  const Slabs slabs = sum_slabs(p, context.device->sm_count);
  auto* const statistics = p.sums() ? partials + aligned(partial_bytes(p, slabs.count)) / sizeof(float) : nullptr;
  return with_half_type(dtype, [&]<class T>(T) {
    const Status rows = launch_rows<T, false>(p, t, slabs_of(p, context.device->sm_count), statistics, context);
    if (!rows.ok() || !p.sums()) return rows;
    const dim3 grid(static_cast<unsigned>(p.images * slabs.count), static_cast<unsigned>(tiles_of(p)));
    const Status sums = launch_kernel("layernorm_backward mma_sums_kernel", mma_sums_kernel<T>,
                                      {.grid = grid, .block = kChannelThreads}, context.stream, p, t, slabs,
                                      reinterpret_cast<const float2*>(statistics), partials);
    return sums.ok() ? launch_images<T>(p, t, slabs.count, partials, context) : sums;
  });
}

}  // namespace noisefloor::layernorm_backward
