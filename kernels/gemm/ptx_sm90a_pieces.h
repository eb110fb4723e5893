// The pieces in which ptx_sm90a moves the residual by TMA, those of the stores, and where they lie in the ring of
// stages. Pure functions: testable without a GPU.
#pragma once

#include "kernels/gemm/schedule.h"
#include "kernels/product/sm90a_pieces.h"

namespace noisefloor::gemm {

using product::buffers_in;
using product::kMostBuffers;
using product::store_bytes;
using product::store_columns;
using product::store_swizzled;

// A tile's residual comes in pieces with the columns and the layout of the stores', so that ldmatrix reads what
// stmatrix will write. Through the ring of stages they go as A and B do, as one or two steps behind the products':
// block_m rows each, as many to a stage as fit. In ping-pong they have 64 rows and go to the buffers of the stores.
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

inline constexpr int kMaxResidualStages = product::kMostOfResidual;

}  // namespace noisefloor::gemm
