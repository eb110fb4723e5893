// grad_norm, tiled: 16 bytes per thread and load, four loads in flight.
//
// Better than naive: a quarter of the memory instructions, and enough of them in flight to cover their latency.
//
// Tile: 256 threads x 4 vectors at a time; at most 1024 blocks, which stride over them. Shared memory: 1 KiB, for a
// block's sum.
//
// Bound: memory traffic; limited in small problems by the second launch.
//
// Requires: a multiple of 4 gradients; below 2^31 vectors.
// Numerics: fp32 sums in a fixed order, four chains a thread.
// Source: original.
#include "kernels/device/vector.cuh"
#include "kernels/grad_norm/sums.cuh"

namespace noisefloor::grad_norm {
namespace {

constexpr int kUnroll = 4;

__global__ void __launch_bounds__(kThreads) tiled_kernel(const float4* g, std::uint32_t vectors, float* sums) {
  __shared__ float shared[kThreads];
  ptx::griddepcontrol_wait();
  float4 sum = make_float4(0, 0, 0, 0);
  const std::uint32_t stride = gridDim.x * kThreads * kUnroll;
  for (std::uint32_t first = blockIdx.x * kThreads * kUnroll + threadIdx.x; first < vectors; first += stride) {
    float4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      values[u] = first + u * kThreads < vectors ? g[first + u * kThreads] : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      sum.x = fmaf(values[u].x, values[u].x, sum.x);
      sum.y = fmaf(values[u].y, values[u].y, sum.y);
      sum.z = fmaf(values[u].z, values[u].z, sum.z);
      sum.w = fmaf(values[u].w, values[u].w, sum.w);
    }
  }
  ptx::griddepcontrol_launch_dependents();
  const float all = block_sum<kThreads>((sum.x + sum.y) + (sum.z + sum.w), shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

}  // namespace

Status launch_tiled(const Problem& p, DType, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  const LaunchShape shape{
      .grid = static_cast<unsigned>(partial_sums(p)), .block = kThreads, .programmatic = context.programmatic_launch};
  const Status status =
      launch_kernel("grad_norm tiled_kernel", tiled_kernel, shape, context.stream, reinterpret_cast<const float4*>(t.g),
                    static_cast<std::uint32_t>(p.elements / 4), static_cast<float*>(scratch.workspace));
  return status.ok() ? launch_norm(p, t, scratch, context) : status;
}

}  // namespace noisefloor::grad_norm
