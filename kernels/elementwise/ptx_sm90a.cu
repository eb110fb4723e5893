// elementwise for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh); layouts by TMA boxes
// and transposing reads of shared memory.
//
// Better than tensor_core_sm80: no multiply-add is in vain; it moves data and takes fp32, too. What differs from tiled,
// the variant before: the loads in flight live in shared memory and do not depend on occupancy, a block lives for
// several tiles, and a change of layout takes one ldmatrix per 16 bytes and lane, with a 4-way bank conflict, where
// tiled takes two instructions and no conflict. Honours programmatic dependent launch.
//
// Requires: streams of a multiple of 16 bytes (broadcast, geglu: rows); layouts bf16 or fp16 with both extents
// multiples of 8 elements.
// Bound: memory traffic.
// Numerics: fp32, one rounding at the end; layouts move bits.
// Source: original; PTX ISA, "cp.async.bulk.tensor", "ldmatrix".
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/elementwise/map.cuh"
#include "kernels/ptx/ldmatrix.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::elementwise {
namespace {

// A tile is `rows` whole rows of y or, where `pieces` of a row are tiles, one piece; `width` vectors of it are the
// value of a row, then its gate.
template <class T>
struct GegluWork {
  static constexpr std::uint32_t kTileVectors = 512;
  GegluMap<T> map;
  std::uint32_t tiles, stage_bytes, rows, width;
  Divider pieces, per_width;

  GegluWork(const GegluMap<T>& the_map, std::uint32_t all_rows) : map(the_map) {
    const std::uint32_t per_row = map.per_row.divisor();
    rows = std::max(1u, kTileVectors / per_row);
    width = std::min(per_row, kTileVectors);
    pieces = Divider((per_row + kTileVectors - 1) / kTileVectors);
    per_width = Divider(width);
    tiles = (all_rows + rows - 1) / rows * pieces.divisor();
    stage_bytes = (rows * width * 32 + 127) / 128 * 128;
  }
  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    const std::uint32_t group = tile / pieces, piece = tile - group * pieces.divisor();
    const std::uint32_t per_row = map.per_row.divisor();
    const std::uint32_t first = group * rows * per_row + piece * width;
    if (pieces.divisor() == 1) {
      const std::uint32_t bytes = min(rows * per_row, map.vectors - first) * 32;
      ptx::mbarrier_arrive_expect_tx(barrier, bytes);
      ptx::bulk_load(stage, map.at(0, first), bytes, barrier);
      return;
    }
    const std::uint32_t bytes = min(width, per_row - piece * width) * 16;
    ptx::mbarrier_arrive_expect_tx(barrier, 2 * bytes);
    ptx::bulk_load(stage, map.at(0, first), bytes, barrier);
    ptx::bulk_load(stage + width * 16, map.at(1, first), bytes, barrier);
  }
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait) const {
    const std::uint32_t stage = wait();
    const std::uint32_t group = tile / pieces, piece = tile - group * pieces.divisor();
    const std::uint32_t per_row = map.per_row.divisor();
    const std::uint32_t first = group * rows * per_row + piece * width;
    const std::uint32_t end = pieces.divisor() == 1 ? map.vectors : (group + 1) * per_row;
    for (std::uint32_t i = threadIdx.x; i < rows * width; i += kBulkConsumers) {
      if (first + i >= end) return;
      const std::uint32_t at = stage + (i + i / per_width * width) * 16;
      const uint4 bits[2] = {ptx::load_shared_16(at), ptx::load_shared_16(at + width * 16)};
      map.apply(first + i, bits);
    }
  }
};

// Each image's [rows, columns] of 16-bit elements becomes [columns, rows].
struct TransposeWork {
  static constexpr std::uint32_t kTile = 64;
  CUtensorMap from;  // all images' rows
  std::uint16_t* to;
  std::uint32_t rows, columns;
  Divider across, down;  // tiles of a row of tiles, and of an image's column of them
  std::uint32_t tiles;
  std::uint32_t stage_bytes = kTile * kTile * 2;

  __device__ __forceinline__ void place(std::uint32_t tile, std::uint32_t& image, std::uint32_t& row,
                                        std::uint32_t& column) const {
    const std::uint32_t line = tile / across;
    column = (tile - line * across.divisor()) * kTile;
    image = line / down;
    row = (line - image * down.divisor()) * kTile;
  }
  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    std::uint32_t image, row, column;
    place(tile, image, row, column);
    ptx::mbarrier_arrive_expect_tx(barrier, stage_bytes);  // what lies outside the tensor arrives as zeros
    ptx::tma_load_2d(stage, &from, barrier, static_cast<int>(column), static_cast<int>(image * rows + row));
  }
  // Warp w writes columns 8 w to 8 w + 7, in two halves of 32 rows. ldmatrix.x4.trans gives lane l two elements of
  // column l / 4 from each of four 8 x 8 matrices, from rows 2 (l % 4) and one more of the matrix. The rows of a matrix
  // may lie anywhere, so row i of matrix m is row 8 (i / 2) + 2 m + i % 2 of the tile: the four registers of a lane are
  // then elements 8 (l % 4) to 8 (l % 4) + 7 of its column, the 16 bytes that it writes.
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait) const {
    std::uint32_t image, row, column;
    place(tile, image, row, column);
    const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const std::uint32_t matrix = lane / 8, i = lane % 8;
    const std::uint32_t stage = wait();
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
      const std::uint32_t source = half * 32 + 8 * (i / 2) + 2 * matrix + i % 2;
      std::uint32_t v[4];
      ptx::ldmatrix_x4_trans(v, stage + source * 128 + (warp ^ (source % 8)) * 16);
      const std::uint32_t r = row + half * 32 + 8 * (lane % 4), c = column + 8 * warp + lane / 4;
      if (r < rows && c < columns)
        store_16_bytes(to + (static_cast<std::int64_t>(image) * columns + c) * rows + r,
                       make_uint4(v[0], v[1], v[2], v[3]));
    }
  }
};

Status transpose(const Problem& p, DType dtype, const Tensors& t, const LaunchContext& context) {
  const bool to_nhwc = p.op == Operation::nchw_to_nhwc;
  const std::int64_t rows = to_nhwc ? p.channels : p.hw, columns = to_nhwc ? p.hw : p.channels;
  constexpr std::uint32_t kTile = TransposeWork::kTile;
  TransposeWork work;
  const Status status = encode_tensor_map(work.from, {dtype, t.a, p.n * rows, columns, kTile, kTile});
  if (!status.ok()) return status;
  work.to = static_cast<std::uint16_t*>(t.y);
  work.rows = static_cast<std::uint32_t>(rows);
  work.columns = static_cast<std::uint32_t>(columns);
  work.across = Divider((work.columns + kTile - 1) / kTile);
  work.down = Divider((work.rows + kTile - 1) / kTile);
  work.tiles = work.across.divisor() * work.down.divisor() * static_cast<std::uint32_t>(p.n);
  return launch_bulk(work, context);
}

template <class Map>
Status launch(const Problem&, const Map& map, const LaunchContext& context) {
  return launch_bulk(FlatWork(map), context);
}
template <class T>
Status launch(const Problem& p, const GegluMap<T>& map, const LaunchContext& context) {
  return launch_bulk(GegluWork<T>(map, static_cast<std::uint32_t>(p.n * p.hw)), context);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  if (p.transposes()) return transpose(p, dtype, t, context);
  return with_map(p, dtype, t, [&](const auto& map) { return launch(p, map, context); });
}

}  // namespace noisefloor::elementwise
