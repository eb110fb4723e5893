// What the tiled variants share: a block's tile as quadrants of FMAs, with operands widened to float and transposed in
// two buffers of shared memory. Device code only.
#pragma once

#include "kernels/device/vector.cuh"

namespace noisefloor::product {

inline constexpr int kQuadrantTile = 128;  // rows and columns of a block's tile
inline constexpr int kQuadrantStep = 8;    // of k
inline constexpr int kQuadrantThreads = 256;
static_assert(kQuadrantThreads == 2 * kQuadrantTile, "half of the threads load A, the other half B, one row each");

struct QuadrantTiles {
  float a[2][kQuadrantStep][kQuadrantTile];
  float b[2][kQuadrantStep][kQuadrantTile];
};
static_assert(sizeof(QuadrantTiles) == 16 * 1024, "shared memory of a block");

// out[0..3] and [4..7]: four elements at `at`, four more half a tile on. A thread's 8x8 outputs are four 4x4 quadrants
// half a tile apart, so that a warp's 16-byte reads touch distinct banks.
__device__ __forceinline__ void load_quadrants(const float (&line)[kQuadrantTile], int at, float (&out)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(line + at);
  const float4 high = *reinterpret_cast<const float4*>(line + kQuadrantTile / 2 + at);
  out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
  out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

// A step's elements from `from` on, at 16 bytes; nothing in the grid may write them.
template <class T>
__device__ __forceinline__ void load_step(const T* from, float (&out)[kQuadrantStep]) {
  constexpr int kLanes = kVectorLanes<T>;
#pragma unroll
  for (int i = 0; i < kQuadrantStep; i += kLanes) {
    float lanes[kLanes];
    load_vector<T, CacheHint::read_only>(from + i, lanes);
#pragma unroll
    for (int j = 0; j < kLanes; ++j) out[i + j] = lanes[j];
  }
}

// sums += the products of one step: 64 FMAs for four 16-byte reads.
__device__ __forceinline__ void multiply_quadrants(const QuadrantTiles& tiles, int buffer, int row, int column,
                                                   float (&sums)[8][8]) {
#pragma unroll
  for (int i = 0; i < kQuadrantStep; ++i) {
    float av[8], bv[8];
    load_quadrants(tiles.a[buffer][i], row, av);
    load_quadrants(tiles.b[buffer][i], column, bv);
#pragma unroll
    for (int r = 0; r < 8; ++r)
#pragma unroll
      for (int c = 0; c < 8; ++c) sums[r][c] = fmaf(av[r], bv[c], sums[r][c]);
  }
}

// Where in the tile a thread's sums[i][j] are.
__device__ __forceinline__ int quadrant_row(int i) {
  return static_cast<int>(threadIdx.x) / 16 * 4 + i / 4 * (kQuadrantTile / 2) + i % 4;
}
__device__ __forceinline__ int quadrant_column(int j) {
  return static_cast<int>(threadIdx.x) % 16 * 4 + j / 4 * (kQuadrantTile / 2) + j % 4;
}

// sums += the products of `k` terms. load(k0, next) fetches the thread's share of the step from k0 on, put(buffer,
// next) leaves it in `tiles`.
template <class Load, class Put>
__device__ __forceinline__ void multiply_tile(const QuadrantTiles& tiles, std::int64_t k, const Load& load,
                                              const Put& put, float (&sums)[8][8]) {
  float next[kQuadrantStep];
  load(0, next);
  int buffer = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += kQuadrantStep, buffer ^= 1) {
    put(buffer, next);
    __syncthreads();  // also: everyone has read the other buffer, which the next step overwrites
    load(k0 + kQuadrantStep, next);
    multiply_quadrants(tiles, buffer, quadrant_row(0), quadrant_column(0), sums);
  }
}

}  // namespace noisefloor::product
