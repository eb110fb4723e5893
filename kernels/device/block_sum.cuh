// A sum over a block. Device code only.
#pragma once

namespace noisefloor {

// The sum of the values of all kThreads threads, to all of them; pairwise, so in fixed order. `shared`: [kThreads].
template <int kThreads>
__device__ float block_sum(float value, float* shared) {
  shared[threadIdx.x] = value;
  for (int stride = kThreads / 2; stride > 0; stride /= 2) {
    __syncthreads();
    if (threadIdx.x < stride) shared[threadIdx.x] += shared[threadIdx.x + stride];
  }
  __syncthreads();
  const float sum = shared[0];
  __syncthreads();
  return sum;
}

}  // namespace noisefloor
