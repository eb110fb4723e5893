// Which tile the sm_80 variants use for a product, and into how many parts they split k. Pure functions of the product
// and the number of SMs, so that workspace and launch agree, and tests need no GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/core/device.h"

namespace noisefloor::product {

// D[m, n] = A[m, k] B[n, k]^T. Gated (geglu): B has another n rows, the gates.
struct Extents {
  std::int64_t m = 1, n = 1, k = 1;
  bool gated = false;
};

struct Sm80Shape {
  int block_m, block_n, block_k;  // block_n counts rows of B: for geglu a tile makes half as many outputs
  int stages;
  int blocks_per_sm;

  constexpr int shared_bytes() const { return stages * (block_m + block_n) * block_k * 2; }
  // In the 228 KiB of an sm_90 SM, of which the system takes 1 KiB for each block.
  constexpr bool fits_sm90() const { return blocks_per_sm * (shared_bytes() + 1024) <= 228 * 1024; }
};
enum class Sm80Tile { tall_256x128, medium_128x64, small_64x64, low_32x64, flat_16x32 };
inline constexpr Sm80Shape kSm80Shapes[] = {
    {256, 128, 64, 3, 1}, {128, 64, 64, 3, 3}, {64, 64, 64, 4, 3}, {32, 64, 128, 3, 3}, {16, 32, 128, 4, 4}};
static_assert(std::ranges::all_of(kSm80Shapes, &Sm80Shape::fits_sm90));
constexpr Sm80Shape shape_of(Sm80Tile tile) {
  return kSm80Shapes[static_cast<std::size_t>(tile)];
}

struct Sm80Plan {
  Sm80Tile tile = Sm80Tile::medium_128x64;
  int splits = 1;  // parts of k, summed in order by a second kernel
  std::int64_t tiles_m = 0;
  std::int64_t tiles_n = 0;

  std::int64_t tiles() const { return tiles_m * tiles_n; }
};

// The plan for a given tile and number of parts (lowered until every part has a step of k).
Sm80Plan make_sm80_plan(const Extents& extents, Sm80Tile tile, int splits);
// The plan that the variant uses: the fastest by a small model of its time (see sm80_plan.cpp).
Sm80Plan choose_sm80_plan(const Extents& extents, const DeviceInfo& device);
// Partial sums: fp32, [splits][tiles_m * block_m][tiles_n * block_n]; nothing without a split.
std::size_t sm80_workspace_bytes(const Sm80Plan& plan);

}  // namespace noisefloor::product
