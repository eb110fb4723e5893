// The pieces in which ptx_sm90a variants store an output tile by TMA, and gemm's brings its residual. Pure functions:
// testable without a GPU.
#pragma once

#include <algorithm>

#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::product {

// The columns of one TMA store: 64 or 32, swizzled, where they divide the tile's, else all of them, unswizzled
// (80, 48, 40 and 16: their rows of 160, 96, 80 and 32 bytes are at most twice in a bank).
constexpr int store_columns(int tile_columns) {
  return tile_columns % 64 == 0 ? 64 : tile_columns % 32 == 0 ? 32 : tile_columns;
}
constexpr bool store_swizzled(int tile_columns) {
  return tile_columns % 32 == 0;
}
// Two buffers where a tile is stored in several pieces by a block that has its SM to itself.
constexpr int store_buffers(int consumers, int tile_columns) {
  return consumers == 2 && store_columns(tile_columns) < tile_columns ? 2 : 1;
}
constexpr int store_bytes(int consumers, int tile_columns) {
  return store_buffers(consumers, tile_columns) * 64 * store_columns(tile_columns) * 2;
}
// Buffers for a tile's pieces in so many bytes. With two or more, a piece is finished while those before it drain, and
// one barrier a piece is enough.
inline constexpr int kMostBuffers = 4;
constexpr int buffers_in(int bytes, int tile_columns) {
  return std::min(bytes / (64 * store_columns(tile_columns) * 2), kMostBuffers);
}

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

}  // namespace noisefloor::product
