// The softmax of the tensor-core variants: logits in the accumulators of mma.sync, turned into its A operand. Device
// code only.
#pragma once

#include <cfloat>
#include <cstdint>

#include "kernels/device/vector.cuh"

namespace noisefloor::temporal_attention {

// The logits of 16 queries and 8 * kTiles keys as mma.sync leaves them: lane l has queries l / 4 and l / 4 + 8, keys
// 8 * tile + 2 * (l % 4) and the next.
template <int kTiles>
using Logits = float[kTiles][4];

// Turns logits into exp(scale * (s - highest)), 0 from key `keys` on, and gives 1 / sum of both queries' rows. `scale`
// is the softmax scale times log2(e).
template <int kTiles>
__device__ __forceinline__ void softmax_rows(Logits<kTiles>& logits, int keys, float scale, float (&inverse)[2]) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
  float highest[2] = {-FLT_MAX, -FLT_MAX}, sum[2] = {};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (8 * tile + first + i % 2 >= keys) logits[tile][i] = -FLT_MAX;
      highest[i / 2] = fmaxf(highest[i / 2], logits[tile][i]);
    }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    highest[row] = fmaxf(highest[row], __shfl_xor_sync(0xffffffffu, highest[row], 1));
    highest[row] = fmaxf(highest[row], __shfl_xor_sync(0xffffffffu, highest[row], 2));
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      logits[tile][i] = 8 * tile + first + i % 2 < keys ? exp2f((logits[tile][i] - highest[i / 2]) * scale) : 0.0f;
      sum[i / 2] += logits[tile][i];
    }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    sum[row] += __shfl_xor_sync(0xffffffffu, sum[row], 1);
    sum[row] += __shfl_xor_sync(0xffffffffu, sum[row], 2);
    inverse[row] = __fdividef(1.0f, sum[row]);
  }
}

// Weights of keys [16 * step, 16 * step + 16) as an A fragment of m16n8k16: an accumulator already has its shape.
template <class T, int kTiles>
__device__ __forceinline__ void weights_fragment(const Logits<kTiles>& weights, int step, std::uint32_t (&a)[4]) {
  a[0] = pack_pair<T>(weights[2 * step][0], weights[2 * step][1]);
  a[1] = pack_pair<T>(weights[2 * step][2], weights[2 * step][3]);
  a[2] = pack_pair<T>(weights[2 * step + 1][0], weights[2 * step + 1][1]);
  a[3] = pack_pair<T>(weights[2 * step + 1][2], weights[2 * step + 1][3]);
}

}  // namespace noisefloor::temporal_attention
