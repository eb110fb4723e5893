// A tile of a convolution on the host, from packed weights to sums, and how tiles cover the output: what convolutions
// and their gradients by the input share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/convolution/host_gather.h"
#include "kernels/core/parallel.h"
#include "kernels/product/host_product.h"

namespace noisefloor::convolution::host_tile {

using namespace host_product;
using host_gather::kChunk;
using host_gather::Row;
using host_gather::sum_length;

inline constexpr std::int64_t kTileM = 96;
inline constexpr std::int64_t kTileN = 512;
static_assert(kTileM % kMicroM == 0 && kTileN % kMicroN == 0, "a tile is a whole number of micro-kernels");
static_assert(kBlockK % kChunk == 0, "a chunk lies in one block of k");

inline std::int64_t packed_columns(const Convolution& c) {
  return round_up(c.cout, kMicroN);
}
inline std::size_t packed_weight_bytes(const Convolution& c) {
  return static_cast<std::size_t>(c.phases() * sum_length(c) * packed_columns(c)) * sizeof(float);
}
// Where the weights of panel `panel` (kMicroN output channels, side by side) for term `k` of a sum stand.
inline std::int64_t packed_place(const Convolution& c, int phase, std::int64_t panel, std::int64_t k) {
  const std::int64_t whole = sum_length(c), block = k / kBlockK * kBlockK;
  const std::int64_t depth = std::min(kBlockK, whole - block);
  return (phase * whole + block) * packed_columns(c) + panel * kMicroN * depth + (k - block) * kMicroN;
}

struct Tile {
  int phase;
  std::int64_t row0, rows, column0, columns;
};

// Calls finish(rows, sums) on the tile's places and its sums [tile.rows][kTileN].
template <class Finish>
void make_tile(const Convolution& c, DType dtype, const Operands& o, const float* weights, const Tile& tile,
               const Finish& finish) {
  alignas(kVectorBytes) float sums[kTileM * kTileN];
  alignas(kVectorBytes) float inputs[kTileM * kBlockK];
  Row rows[kTileM];
  const std::int64_t height = round_up(tile.rows, kMicroM);
  for (std::int64_t i = 0; i < height; ++i) {
    const Pixel at = row_pixel(c, tile.row0 + std::min(i, tile.rows - 1));
    rows[i] = {at.image, at.y, at.x, i < tile.rows};
  }
  const std::int64_t width = round_up(tile.columns, kMicroN);
  std::fill_n(sums, height * kTileN, 0.0f);
  const std::int64_t length = sum_length(c);
  for (std::int64_t k0 = 0; k0 < length; k0 += kBlockK) {
    const std::int64_t depth = std::min(kBlockK, length - k0);
    host_gather::pack_inputs(c, dtype, o, tile.phase, rows, height, k0, depth, inputs);
    const float* b = weights + (tile.phase * length + k0) * packed_columns(c) + tile.column0 * depth;
    for (std::int64_t j = 0; j < width; j += kMicroN)
      for (std::int64_t i = 0; i < height; i += kMicroM)
        micro_kernel(depth, inputs + i * depth, b + j * depth, sums + i * kTileN + j, kTileN);
  }
  finish(rows, sums);
}

// Calls body(tile) on tiles that cover the output, on all cores.
template <class Body>
void each_tile(const Convolution& c, const LaunchContext& context, const Body& body) {
  const std::int64_t tiles_m = (c.phase_rows() + kTileM - 1) / kTileM;
  if (tiles_m == 0) return;
  const std::int64_t wanted = 2 * std::max(1, context.device->sm_count);  // tasks: two a core balance
  const std::int64_t parts = std::max<std::int64_t>(1, wanted / (tiles_m * c.phases()));
  const std::int64_t tile_n =
      std::clamp(round_up((c.cout + parts - 1) / parts, kMicroN), std::int64_t{4 * kMicroN}, kTileN);
  const std::int64_t tiles_n = (c.cout + tile_n - 1) / tile_n;
  parallel_for(c.phases() * tiles_m * tiles_n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      Tile tile;
      tile.phase = static_cast<int>(t / (tiles_m * tiles_n));
      tile.row0 = t / tiles_n % tiles_m * kTileM;
      tile.rows = std::min(kTileM, c.phase_rows() - tile.row0);
      tile.column0 = t % tiles_n * tile_n;
      tile.columns = std::min(tile_n, c.cout - tile.column0);
      body(tile);
    }
  });
}

}  // namespace noisefloor::convolution::host_tile
