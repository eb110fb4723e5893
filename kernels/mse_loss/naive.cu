// mse_loss, naive: one element after the other by a thread, as the formulas read; a block's sum pairwise, the blocks'
// by a second launch.
//
// Threads: 256; at most 4096 blocks, which stride over the elements. A 64-bit division, and the weight's fp32 division,
// an element.
//
// Bound: memory traffic by 2- to 4-byte accesses, and issue slots beside it.
//
// Requires: nothing.
// Numerics: fp32 sums in a fixed order; dy is rounded once.
// Source: original.
#include "kernels/mse_loss/sums.cuh"

namespace noisefloor::mse_loss {
namespace {

template <class T>
__global__ void __launch_bounds__(kStreamThreads)
    naive_kernel(const Tensors t, std::int64_t elements, std::int64_t total, float slope, float sigma_data,
                 float* sums) {
  __shared__ float shared[kStreamThreads];
  float sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kStreamThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStreamThreads + threadIdx.x; i < total; i += stride) {
    const float weight = t.sigma ? weight_of(t.sigma[i / elements], sigma_data) : 1.0f;
    const float difference = to_float(static_cast<const T*>(t.y)[i]) - to_float(static_cast<const T*>(t.target)[i]);
    sum += weight * difference * difference;
    static_cast<T*>(t.dy)[i] = from_float<T>(slope * weight * difference);
  }
  sum = block_sum<kStreamThreads>(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  const Status status = with_type(dtype, [&]<class T>(T) {
    return launch_kernel("mse_loss naive_kernel", naive_kernel<T>,
                         {.grid = static_cast<unsigned>(partial_sums(p)), .block = kStreamThreads}, context.stream, t,
                         p.elements, p.total(), slope_of(p), static_cast<float>(p.sigma_data),
                         static_cast<float*>(scratch.workspace));
  });
  return status.ok() ? launch_finish("mse_loss naive_kernel", scratch, partial_sums(p), Finish(p, t), context) : status;
}

}  // namespace noisefloor::mse_loss
