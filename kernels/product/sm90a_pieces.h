// The pieces in which ptx_sm90a rungs store an output tile by TMA. Pure functions: testable without a GPU.
#pragma once

#include <algorithm>

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

}  // namespace noisefloor::product
