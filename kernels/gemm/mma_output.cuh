// What the mma.sync variants of gemm add to the tiles of kernels/product: the rows of B behind a tile, and the way of
// its sums to D. Device code only.
#pragma once

#include "kernels/gemm/epilogue.cuh"
#include "kernels/product/mma_tile.cuh"

namespace noisefloor::gemm {

using product::drain_column;
using product::Fragments;
using product::kDrained;
using product::Sums;
using product::swizzled;
using product::warp_coordinate;
using product::WarpCoordinate;

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

// For drain_sums: the epilogue, into D from row `row0` on.
template <class T>
struct ToOutput {
  using Ahead = typename Columns<T, kDrained>::Ahead;
  Columns<T, kDrained> columns;
  std::int64_t row0, m;

  __device__ __forceinline__ Ahead prefetch(int row) const {
    return row0 + row < m ? columns.ahead(row0 + row) : Ahead{};
  }
  __device__ __forceinline__ void take(int row, const float (&sums)[kDrained], const float (&gates)[kDrained],
                                       const Ahead& ahead) const {
    if (row0 + row < m) columns.store(row0 + row, sums, gates, ahead);
  }
};

}  // namespace noisefloor::gemm
