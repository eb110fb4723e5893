// The pieces in which ptx_sm90a moves the residual by TMA, those of the stores, and where they lie in the ring of
// stages. Pure functions: testable without a GPU.
#pragma once

#include "kernels/gemm/schedule.h"
#include "kernels/product/sm90a_pieces.h"

namespace noisefloor::gemm {

using product::store_buffers;
using product::store_bytes;
using product::store_columns;
using product::store_swizzled;

// A tile's residual goes through the ring of stages as A and B do, as one or two steps behind the products': pieces of
// block_m rows x store_columns in the layout of the stores' pieces (so that ldmatrix reads what stmatrix will write),
// as many to a stage as fit.
struct ResidualPieces {
  int columns;  // of a piece
  int bytes;
  int count;      // of a tile
  int per_stage;  // at most

  constexpr int stages() const { return (count + per_stage - 1) / per_stage; }
  constexpr bool last_of_stage(int piece) const { return piece + 1 == count || (piece + 1) % per_stage == 0; }
};

constexpr ResidualPieces residual_pieces(int consumers, int block_n, bool gated) {
  const int tile_columns = gated ? block_n / 2 : block_n;
  const int block_m = 64 * consumers;
  const int columns = store_columns(tile_columns);
  const int bytes = block_m * columns * 2;
  return {columns, bytes, tile_columns / columns, (block_m + block_n) * kRowBytes / bytes};
}

inline constexpr int kMaxResidualStages = 2;

}  // namespace noisefloor::gemm
