// What the mma.sync rungs of gemm share: how a block's tile is cut into warp tiles, how 16-bit tiles lie in shared
// memory, how fragments are read from there, and the way of the sums to D. Device code only.
#pragma once

#include <cstdint>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/launchers.h"
#include "kernels/ptx/ldmatrix.cuh"

namespace noisefloor::gemm {

// A block makes kBlockM x kBlockN sums in steps of kBlockK. Its warps form a grid of kWarpsM x kWarpsN warp tiles; with
// kWarpsK > 1 as many warps share a warp tile and split every step's k between them.
template <int kBlockM_, int kBlockN_, int kBlockK_, int kWarpsM_, int kWarpsN_, int kWarpsK_, int kStages_>
struct Tile {
  static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kBlockK = kBlockK_;
  static constexpr int kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kWarpsK = kWarpsK_;
  static constexpr int kStages = kStages_;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN * kWarpsK;
  static constexpr int kWarpM = kBlockM / kWarpsM, kWarpN = kBlockN / kWarpsN;
  static constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 8;  // of mma m16n8
  static constexpr int kStepsK = kBlockK / 16 / kWarpsK;                     // k16 steps of one warp
  static constexpr int kStageBytes = (kBlockM + kBlockN) * kBlockK * 2;
  // The epilogue passes 16 rows of every warp tile at a time through shared memory, with 8 floats between rows so that
  // the 8-byte writes of a fragment (row l/4, columns 2(l%4)) fall into distinct banks.
  static constexpr int kSlabStride = kBlockN + 8;
  static constexpr int kSlabRows = 16 * kWarpsM;
  static constexpr int kSlabBytes = kWarpsK * kSlabRows * kSlabStride * 4;
  static constexpr int kSharedBytes = kStages * kStageBytes > kSlabBytes ? kStages* kStageBytes : kSlabBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "ldmatrix_x4 reads 16 rows of A or B");
  static_assert(kBlockK % (16 * kWarpsK) == 0, "a warp multiplies whole k16 steps");
};

struct WarpPlace {
  int m, n, k;  // in the grid of warps
};
template <class Tile>
__device__ __forceinline__ WarpPlace warp_place() {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return {warp % Tile::kWarpsM, warp / Tile::kWarpsM % Tile::kWarpsN, warp / (Tile::kWarpsM * Tile::kWarpsN)};
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of kBlockK 16-bit elements a row. Chunks are permuted
// within a row so that the eight rows of an ldmatrix matrix, and the rows written by a warp, fall into distinct banks.
template <int kBlockK>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  static_assert(kBlockK == 32 || kBlockK % 64 == 0, "rows of 64 bytes, or of whole 128-byte lines");
  const int permuted = kBlockK == 32 ? chunk ^ ((row >> 1) & 3) : chunk ^ (row & 7);
  return row * (kBlockK * 2) + permuted * 16;
}

// Fragments of one k16 step: A 16x16 per fragment in the order of mma m16n8k16 (registers 0, 1: k 0..7; 2, 3: k 8..15),
// B 8x16 per fragment (register 0: k 0..7; 1: k 8..15).
template <class Tile>
struct Fragments {
  std::uint32_t a[Tile::kFragmentsM][4];
  std::uint32_t b[Tile::kFragmentsN][2];

  // `a_tile` and `b_tile` are shared addresses of one stage; `step` counts k16 steps within it.
  __device__ __forceinline__ void load_a(int i, std::uint32_t a_tile, WarpPlace warp, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = warp.m * Tile::kWarpM + i * 16 + lane % 16;
    ptx::ldmatrix_x4(a[i], a_tile + swizzled<Tile::kBlockK>(row, step * 2 + lane / 16));
  }
  __device__ __forceinline__ void load_b(std::uint32_t b_tile, WarpPlace warp, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < Tile::kFragmentsN; j += 2) {
      const int row = warp.n * Tile::kWarpN + j * 8 + lane / 16 * 8 + lane % 8;
      std::uint32_t pair[4];
      ptx::ldmatrix_x4(pair, b_tile + swizzled<Tile::kBlockK>(row, step * 2 + lane / 8 % 2));
      b[j][0] = pair[0], b[j][1] = pair[1];
      b[j + 1][0] = pair[2], b[j + 1][1] = pair[3];
    }
  }
  __device__ __forceinline__ void load(std::uint32_t a_tile, std::uint32_t b_tile, WarpPlace warp, int step) {
#pragma unroll
    for (int i = 0; i < Tile::kFragmentsM; ++i) load_a(i, a_tile, warp, step);
    load_b(b_tile, warp, step);
  }
};

template <class Tile>
using Sums = float[Tile::kFragmentsM][Tile::kFragmentsN][4];

// The columns of a block's tile are rows of B. For geglu they alternate: 8 values, then the gates of the same 8
// outputs, so that a value and its gate meet in one warp. Returns the row of B behind tile column `packed` of tile
// `tile_n`, or -1.
template <class Tile>
__device__ __forceinline__ std::int64_t b_row(std::int64_t tile_n, int packed, std::int64_t n, bool gated) {
  if (!gated) {
    const std::int64_t column = tile_n * Tile::kBlockN + packed;
    return column < n ? column : -1;
  }
  const std::int64_t column = tile_n * (Tile::kBlockN / 2) + packed / 16 * 8 + packed % 8;
  if (column >= n) return -1;
  return packed % 16 < 8 ? column : n + column;
}

// Hands every 8 neighbouring sums of the tile to `take(row, packed column, float[8] sums, float[8] gates)`, rows and
// packed columns counted from the tile's corner. With `gated`, sums come with the gates that lie 8 columns on; without,
// gates are 0. All threads of the block must call it; `slab` is Tile::kSlabBytes of shared memory that no one uses any
// more.
template <class Tile, class Take>
__device__ __forceinline__ void drain_sums(const Sums<Tile>& sums, float* slab, bool gated, const Take& take) {
  const WarpPlace warp = warp_place<Tile>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int width = gated ? 16 : 8;
  const int groups = Tile::kBlockN / width;
  float* corner = slab + (warp.k * Tile::kSlabRows + warp.m * 16 + lane / 4) * Tile::kSlabStride +
                  warp.n * Tile::kWarpN + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Tile::kFragmentsM; ++i) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < Tile::kFragmentsN; ++j) {
      *reinterpret_cast<float2*>(corner + j * 8) = make_float2(sums[i][j][0], sums[i][j][1]);
      *reinterpret_cast<float2*>(corner + 8 * Tile::kSlabStride + j * 8) = make_float2(sums[i][j][2], sums[i][j][3]);
    }
    __syncthreads();
    for (int item = static_cast<int>(threadIdx.x); item < Tile::kSlabRows * groups; item += Tile::kThreads) {
      const int slab_row = item / groups;
      const int packed = item % groups * width;
      float values[8] = {}, gates[8] = {};
#pragma unroll
      for (int part = 0; part < Tile::kWarpsK; ++part) {
        const float* line = slab + (part * Tile::kSlabRows + slab_row) * Tile::kSlabStride + packed;
#pragma unroll
        for (int c = 0; c < 8; ++c) values[c] += line[c];
        if (gated) {
#pragma unroll
          for (int c = 0; c < 8; ++c) gates[c] += line[8 + c];
        }
      }
      take(slab_row / 16 * Tile::kWarpM + i * 16 + slab_row % 16, packed, values, gates);
    }
  }
}

}  // namespace noisefloor::gemm
