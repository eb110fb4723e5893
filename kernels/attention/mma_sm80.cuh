// What the mma.sync kernels of attention and of kernels/attention_backward do with rows of a head in shared memory:
// multiply them with a warp's own, add them up by weights. Device code only.
#pragma once

#include <cstdint>

#include "kernels/device/vector.cuh"
#include "kernels/ptx/ldmatrix.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::attention {

// logits += the warp's own rows, of which load(a, m, step) gives 16 by 16 elements, times a block's, along the head.
// `block`: this lane's ldmatrix address.
template <class T, int kSteps, int kRowBytes, int kSixteens, int kTiles, class Load>
__device__ __forceinline__ void multiply_rows(float (&logits)[kSixteens][kTiles][4], std::uint32_t block,
                                              const Load& load) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    std::uint32_t a[kSixteens][4];
#pragma unroll
    for (int m = 0; m < kSixteens; ++m) load(a[m], m, step);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t b[4];
      ptx::ldmatrix_x4(b, block + n * 8 * kRowBytes + step * 32);
#pragma unroll
      for (int m = 0; m < kSixteens; ++m) {
        ptx::mma_m16n8k16<T>(logits[m][n], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<T>(logits[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// sums += weights times the block's rows; `block`: this lane's address for transposed ldmatrix.
template <class T, int kRowBytes, int kSixteens, int kTiles, int kOutTiles>
__device__ __forceinline__ void add_products(const float (&weights)[kSixteens][kTiles][4], std::uint32_t block,
                                             float (&sums)[kSixteens][kOutTiles][4]) {
#pragma unroll
  for (int step = 0; step < kTiles / 2; ++step) {
    std::uint32_t a[kSixteens][4];
#pragma unroll
    for (int m = 0; m < kSixteens; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& tile = weights[m][2 * step + i / 2];
        a[m][i] = pack_pair<T>(tile[i % 2 * 2], tile[i % 2 * 2 + 1]);
      }
#pragma unroll
    for (int n = 0; n < kOutTiles; n += 2) {
      std::uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, block + step * 16 * kRowBytes + n * 16);
#pragma unroll
      for (int m = 0; m < kSixteens; ++m) {
        ptx::mma_m16n8k16<T>(sums[m][n], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace noisefloor::attention
