// grad_norm, naive: one gradient after the other by a thread; a block's sum pairwise, the blocks' by a second launch.
//
// Threads: 256; at most 4096 blocks, which stride over the gradients.
//
// Bound: memory traffic by 4-byte accesses, one in flight a thread.
//
// Requires: nothing.
// Numerics: fp32 sums in a fixed order.
// Source: original.
#include "kernels/grad_norm/sums.cuh"

namespace noisefloor::grad_norm {
namespace {

__global__ void __launch_bounds__(kStreamThreads) naive_kernel(const float* g, std::int64_t elements, float* sums) {
  __shared__ float shared[kStreamThreads];
  float sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kStreamThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStreamThreads + threadIdx.x; i < elements; i += stride)
    sum += g[i] * g[i];
  sum = block_sum<kStreamThreads>(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

Status launch_naive(const Problem& p, DType, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  const Status status = launch_kernel("grad_norm naive_kernel", naive_kernel,
                                      {.grid = static_cast<unsigned>(partial_sums(p)), .block = kStreamThreads},
                                      context.stream, t.g, p.elements, static_cast<float*>(scratch.workspace));
  return status.ok() ? launch_finish("grad_norm naive_kernel", scratch, partial_sums(p), Finish(p, t), context)
                     : status;
}

}  // namespace noisefloor::grad_norm
