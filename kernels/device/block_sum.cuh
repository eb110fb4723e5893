// Sums over lanes and over a block. Device code only.
#pragma once

namespace noisefloor {

__device__ __forceinline__ float2& operator+=(float2& sum, float2 other) {
  sum.x += other.x;
  sum.y += other.y;
  return sum;
}

// The sum over each kLanes neighbouring lanes of a warp, all of which have a value, to all of them.
template <int kLanes = 32>
__device__ __forceinline__ float lane_sum(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
template <int kLanes = 32>
__device__ __forceinline__ float2 lane_sum(float2 value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value.x += __shfl_xor_sync(0xffffffffu, value.x, mask);
    value.y += __shfl_xor_sync(0xffffffffu, value.y, mask);
  }
  return value;
}

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
