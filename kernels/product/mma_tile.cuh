// What the mma.sync variants share: how a block's tile is cut into warp tiles, how 16-bit tiles lie in shared
// memory, how fragments are read from there, and the way of the sums to D. Device code only.
#pragma once

#include <cstdint>

#include "kernels/product/epilogue.cuh"
#include "kernels/ptx/ldmatrix.cuh"

namespace noisefloor::product {

// A block makes kBlockM x kBlockN sums in steps of kBlockK. Its warps form a grid of kWarpsM x kWarpsN warp tiles; with
// kWarpsK > 1 as many warps share a warp tile and split every step's k between them.
template <int kBlockM_, int kBlockN_, int kBlockK_, int kWarpsM_, int kWarpsN_, int kWarpsK_, int kStages_>
struct MmaTile {
  static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kBlockK = kBlockK_;
  static constexpr int kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kWarpsK = kWarpsK_;
  static constexpr int kStages = kStages_;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN * kWarpsK;
  static constexpr int kWarpM = kBlockM / kWarpsM, kWarpN = kBlockN / kWarpsN;
  static constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 8;  // of mma m16n8
  static constexpr int kStepsK = kBlockK / 16 / kWarpsK;                     // k16 steps of one warp
  static constexpr int kStageBytes = (kBlockM + kBlockN) * kBlockK * 2;
  // The epilogue passes the sums through shared memory, where the pipeline was: kSlabFragments fragment rows of every
  // warp tile at a time. 8 floats between rows make the 8-byte writes of a fragment (row l/4, columns 2(l%4))
  // conflict-free.
  static constexpr int kSlabStride = kBlockN + 8;
  static constexpr int kPipelineBytes = kStages * kStageBytes;
  static constexpr int slab_bytes(int fragments) { return kWarpsK * 16 * fragments * kWarpsM * kSlabStride * 4; }
  static constexpr int kSlabFragments = slab_bytes(kFragmentsM) <= kPipelineBytes ? kFragmentsM : 1;
  static constexpr int kSlabRows = 16 * kSlabFragments * kWarpsM;
  static constexpr int kSlabBytes = slab_bytes(kSlabFragments);
  static constexpr int kSharedBytes = kPipelineBytes > kSlabBytes ? kPipelineBytes : kSlabBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "ldmatrix_x4 reads 16 rows of A or B");
  // Whether a stage of A or B has kBlockK rows of k, in which m or n lie side by side: ldmatrix transposes them.
  static constexpr bool kColumnsA = false, kColumnsB = false;
  static_assert(kBlockK % (16 * kWarpsK) == 0, "a warp multiplies whole k16 steps");
};

struct WarpCoordinate {
  int m, n, k;  // in the grid of warps
};
template <class Tile>
__device__ __forceinline__ WarpCoordinate warp_coordinate() {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return {warp % Tile::kWarpsM, warp / Tile::kWarpsM % Tile::kWarpsN, warp / (Tile::kWarpsM * Tile::kWarpsN)};
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of kBlockK 16-bit elements a row. Chunks are permuted
// within a row so that the eight rows of an ldmatrix matrix, and the rows written by a warp, fall into distinct banks.
template <int kBlockK>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  static_assert(kBlockK == 16 || kBlockK == 32 || kBlockK % 64 == 0, "rows of whole 128-byte lines, or 2 or 4 to one");
  const int permuted = kBlockK == 16   ? chunk ^ ((row >> 2) & 1)
                       : kBlockK == 32 ? chunk ^ ((row >> 1) & 3)
                                       : chunk ^ (row & 7);
  return row * (kBlockK * 2) + permuted * 16;
}

// Fragments of one k16 step: A 16x16 per fragment in the order of mma m16n8k16 (registers 0, 1: k 0..7; 2, 3: k 8..15),
// B 8x16 per fragment (register 0: k 0..7; 1: k 8..15).
template <class Tile>
struct Fragments {
  std::uint32_t a[Tile::kFragmentsM][4];
  std::uint32_t b[Tile::kFragmentsN][2];

  // `a_tile` and `b_tile` are shared addresses of one stage; `step` counts k16 steps within it.
  __device__ __forceinline__ void load_a(int i, std::uint32_t a_tile, WarpCoordinate warp, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (Tile::kColumnsA) {
      const int k = step * 16 + lane / 16 * 8 + lane % 8;
      const int chunk = (warp.m * Tile::kWarpM + i * 16) / 8 + lane / 8 % 2;
      ptx::ldmatrix_x4_trans(a[i], a_tile + swizzled<Tile::kBlockM>(k, chunk));
    } else {
      const int row = warp.m * Tile::kWarpM + i * 16 + lane % 16;
      ptx::ldmatrix_x4(a[i], a_tile + swizzled<Tile::kBlockK>(row, step * 2 + lane / 16));
    }
  }
  __device__ __forceinline__ void load_b(std::uint32_t b_tile, WarpCoordinate warp, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < Tile::kFragmentsN; j += 2) {
      std::uint32_t pair[4];
      if constexpr (Tile::kColumnsB) {
        const int k = step * 16 + lane / 8 % 2 * 8 + lane % 8;
        const int chunk = (warp.n * Tile::kWarpN + j * 8) / 8 + lane / 16;
        ptx::ldmatrix_x4_trans(pair, b_tile + swizzled<Tile::kBlockN>(k, chunk));
      } else {
        const int row = warp.n * Tile::kWarpN + j * 8 + lane / 16 * 8 + lane % 8;
        ptx::ldmatrix_x4(pair, b_tile + swizzled<Tile::kBlockK>(row, step * 2 + lane / 8 % 2));
      }
      b[j][0] = pair[0], b[j][1] = pair[1];
      b[j + 1][0] = pair[2], b[j + 1][1] = pair[3];
    }
  }
  __device__ __forceinline__ void load(std::uint32_t a_tile, std::uint32_t b_tile, WarpCoordinate warp, int step) {
#pragma unroll
    for (int i = 0; i < Tile::kFragmentsM; ++i) load_a(i, a_tile, warp, step);
    load_b(b_tile, warp, step);
  }
};

template <class Tile>
using Sums = float[Tile::kFragmentsM][Tile::kFragmentsN][4];

// In drain_sums a thread takes kDrained neighbouring outputs at a time (one 16-byte read: 8 threads cover all 32
// banks), the same columns in every row. `outputs` of a tile's columns are outputs: all of them, or half for geglu.
inline constexpr int kDrained = 4;
__device__ __forceinline__ int drain_column(int outputs) {
  return static_cast<int>(threadIdx.x) % (outputs / kDrained) * kDrained;
}

// Passes the sums of a finished tile to `out`: for every row of the tile, at this thread's columns,
//   out.take(row, float[kDrained] sums, float[kDrained] gates, out.prefetch(row));
// several rows' prefetches are in flight before the first is used. Without `gated`, gates are 0. All threads of the
// block must call it, none of which may still use `shared` (Tile::kSlabBytes).
template <class Tile, class Out>
__device__ __forceinline__ void drain_sums(const Sums<Tile>& sums, void* shared, bool gated, const Out& out) {
  using Four = Run<float, kDrained>;
  auto* slab = static_cast<float*>(shared);
  const WarpCoordinate warp = warp_coordinate<Tile>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int outputs = gated ? Tile::kBlockN / 2 : Tile::kBlockN;
  const int rows_per_pass = Tile::kThreads * kDrained / outputs;
  const int first_row = static_cast<int>(threadIdx.x) * kDrained / outputs;
  const int column = drain_column(outputs);
  const int packed = gated ? column / 8 * 16 + column % 8 : column;
  float* corner = slab +
                  (warp.k * Tile::kSlabRows + warp.m * 16 * Tile::kSlabFragments + lane / 4) * Tile::kSlabStride +
                  warp.n * Tile::kWarpN + lane % 4 * 2;
#pragma unroll
  for (int done = 0; done < Tile::kFragmentsM; done += Tile::kSlabFragments) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Tile::kSlabFragments; ++i)
#pragma unroll
      for (int j = 0; j < Tile::kFragmentsN; ++j) {
        const float(&sum)[4] = sums[done + i][j];
        float* at = corner + i * 16 * Tile::kSlabStride + j * 8;
        *reinterpret_cast<float2*>(at) = make_float2(sum[0], sum[1]);
        *reinterpret_cast<float2*>(at + 8 * Tile::kSlabStride) = make_float2(sum[2], sum[3]);
      }
    __syncthreads();
    constexpr int kBatch = Tile::kBlockM >= 64 ? 4 : 1;
    for (int slab_row = first_row; slab_row < Tile::kSlabRows; slab_row += kBatch * rows_per_pass) {
      const auto tile_row = [&](int b) {
        const int row = slab_row + b * rows_per_pass;
        constexpr int kWarpRows = 16 * Tile::kSlabFragments;  // of a slab
        return row / kWarpRows * Tile::kWarpM + done * 16 + row % kWarpRows;
      };
      decltype(out.prefetch(0)) ahead[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        if (slab_row + b * rows_per_pass < Tile::kSlabRows) ahead[b] = out.prefetch(tile_row(b));
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (slab_row + b * rows_per_pass >= Tile::kSlabRows) break;
        float values[kDrained] = {}, gates[kDrained] = {};
#pragma unroll
        for (int part = 0; part < Tile::kWarpsK; ++part) {
          const float* line =
              slab + (part * Tile::kSlabRows + slab_row + b * rows_per_pass) * Tile::kSlabStride + packed;
          const auto value = *reinterpret_cast<const Four*>(line);
          const auto gate = gated ? *reinterpret_cast<const Four*>(line + 8) : Four{};
#pragma unroll
          for (int c = 0; c < kDrained; ++c) values[c] += value.v[c], gates[c] += gate.v[c];
        }
        out.take(tile_row(b), values, gates, ahead[b]);
      }
    }
  }
}

}  // namespace noisefloor::product
