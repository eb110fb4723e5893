// How the two-pass variants (tiled, tensor_core_sm80) cut a problem: each image into slabs of rows, each row into tiles
// of columns (a column is one access wide). Pure arithmetic, shared by host and device, tested on the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

inline constexpr int kSlabThreads = 256;

struct SlabPlan {
  std::int64_t slab_rows = 1;  // rows of a slab; the last of an image may be shorter
  std::int64_t slabs = 1;      // of an image
  int tile_columns = 1;        // columns of a tile: the threads of a block along channels
  int tile_rows = 1;           // threads of a block along rows
  int tiles = 1;               // of a row

  int threads() const { return tile_columns * tile_rows; }
};

// Elements of an access of tiled: 16 bytes of them, or one.
inline int lanes_of(std::int64_t channels, DType dtype) {
  const int lanes = 16 / static_cast<int>(size_of(dtype));
  return channels % lanes == 0 ? lanes : 1;
}

// `lanes`: elements per access. Tiles are as wide as the row, up to `max_columns`; slabs give each SM about eight
// blocks, but each thread four rows or more to add up where the problem has them.
inline SlabPlan plan_slabs(const Problem& p, int lanes, int sm_count, int max_columns = kSlabThreads) {
  SlabPlan plan;
  const std::int64_t columns = (p.channels + lanes - 1) / lanes;
  plan.tile_columns = static_cast<int>(std::min<std::int64_t>(columns, max_columns));
  plan.tile_rows = kSlabThreads / plan.tile_columns;
  plan.tiles = static_cast<int>((columns + plan.tile_columns - 1) / plan.tile_columns);
  const std::int64_t wanted = std::max<std::int64_t>(8 * sm_count / (p.n * plan.tiles), 1);
  plan.slab_rows =
      std::max<std::int64_t>((p.hw + wanted - 1) / wanted, std::min<std::int64_t>(4 * plan.tile_rows, p.hw));
  plan.slabs = (p.hw + plan.slab_rows - 1) / plan.slab_rows;
  return plan;
}

// With down_w the last kernel's slabs are of y's pixels.
inline SlabPlan plan_down_slabs(Problem p, int lanes, int sm_count, int max_columns = kSlabThreads) {
  p.hw = p.y_pixels();
  return plan_slabs(p, lanes, sm_count, max_columns);
}

// fp32: partials [n, slabs, 2, channels] (mean, M2) unless they are given, then coefficients [n, 2, channels] (a, b of
// y = fusion(x * a + b)) unless they are the output.
inline std::int64_t slab_partials(const Problem& p, const SlabPlan& plan) {
  return p.given() ? 0 : p.n * plan.slabs * 2 * p.channels;
}
inline std::size_t slab_workspace_bytes(const Problem& p, const SlabPlan& plan) {
  return static_cast<std::size_t>(slab_partials(p, plan) + (p.coefficients ? 0 : p.n * 2 * p.channels)) * sizeof(float);
}
inline float* slab_coefficients(const Problem& p, const Tensors& t, const SlabPlan& plan, void* workspace) {
  return p.coefficients ? static_cast<float*>(t.y) : static_cast<float*>(workspace) + slab_partials(p, plan);
}

}  // namespace noisefloor::groupnorm
