// What a block of ptx_sm90a is given: its arguments, its place in the output and its shared memory. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/epilogue.cuh"
#include "kernels/convolution/schedule.h"
#include "kernels/device/tensor_map.h"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/product/sm90a_pieces.h"
#include "kernels/product/sm90a_schedule.h"
#include "kernels/product/tile_order.h"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

using product::Barriers;
using product::kSwizzleAtom;
using product::TileIndex;
using product::WarpRole;

inline constexpr int kSplitColumns = 64;  // channels of a split tile's pieces

// The weights, of which a step takes a tile's output channels and 64 input channels under a tap. A gradient's are
// n-major: their boxes have a share of the input channels and 64 outputs, side by side.
template <class Op>
MatrixMap weights_map(const Convolution& c, DType dtype, const typename Op::Operands& o, int block_n, int multicast) {
  if constexpr (kIsGradient<Op>) {
    const std::int64_t columns = std::int64_t{c.y.kernel_taps} * c.x.kernel_taps * c.cout;
    return {dtype, o.w, o.w_rows, columns, kBlockK / multicast, kBlockK};
  } else {
    return {dtype, o.w, c.weight_rows(), c.weight_row(), product::b_box_rows(block_n, multicast), kBlockK};
  }
}
template <class Op>
inline constexpr int kWeightBox = product::Majors{.b = kIsGradient<Op>}.b_box();
// Where those of a tap of the kernel begin, as product::load_b takes it, from an input channel and an output on. A
// gradient's tile may reach into the next tap's columns, whose outputs are not stored.
template <class Op>
__device__ __forceinline__ int weight_k(const Convolution& c, int tap, int channel) {
  return kIsGradient<Op> ? channel : tap * c.cin + channel;
}
template <class Op>
__device__ __forceinline__ int weight_row(const Convolution& c, int tap, int output) {
  return kIsGradient<Op> ? tap * c.cout + output : output;
}

// What the epilogue writes.
template <class T, class Op = Outputs>
struct Output {
  Convolution c;
  Epilogue<T, Op> epilogue;
  float *mean, *m2;
};

template <class T, class Op = Outputs>
struct Arguments : Output<T, Op> {
  int phase_rows;
  Divider phase_clusters, pixels, row;  // pixels of an image's phase, and of a row of it
  product::Rasterisation order;
  int cin_steps, tap_steps, k_steps;  // of a tap, of all taps, and with the second source's
  int stages, early, multicast;       // early: stages whose weights are constant, and come first
  bool by_tma;                        // whether TMA stores the output
  product::DsmemBuffer dsmem;
  Divider splits;
};

// Shared memory of a block: stages of pixel rows and weight rows; per consumer the buffers of stores; per consumer a
// multiplier and an addend per channel; then the barriers.
template <int kTile>
struct Layout : product::Sm90aBlock<kTiles[kTile]> {
  using Block = product::Sm90aBlock<kTiles[kTile]>;
  using Block::kShape, Block::kStageBytes;
  static constexpr int kPieceColumns = product::store_columns(kShape.block_n);
  static constexpr int kStoreBytes = 64 * kSplitColumns * 2;
  static constexpr int kBuffers = product::buffers_in(kStoreBytes, kShape.block_n);
  static constexpr int kConsumerBytes = kStoreBytes + kShape.block_n * 8;

  static constexpr int bytes(int stages) {
    return kSwizzleAtom + stages * kStageBytes + kShape.consumers * kConsumerBytes + Barriers::bytes(stages);
  }
  static constexpr bool kCanSplit = can_split(kShape, 2);
  static constexpr int dsmem_stages(int splits) {
    return product::stages_for(dsmem_bytes(kShape, splits), kStageBytes);
  }
  static_assert(Block::fits(bytes(kShape.stages), bytes(kShape.deep_stages)), "shared memory of an SM and of a block");
};

// The rows of a warpgroup's share of a tile: up to 64 that follow each other in a phase of the product.
struct RowRun {
  int phase, row0, rows;  // rows: how many exist

  __device__ __forceinline__ bool has(int row) const { return row < rows; }
  // Output pixel of a row.
  __device__ __forceinline__ int pixel(const Convolution& c, int row) const {
    const int at = row0 + row;
    if (c.y.phases * c.x.phases == 1) return at;
    const int pixels = c.y.out * c.x.out;
    const int within = at % pixels;
    const int y = within / c.x.out * c.y.phases + phase / c.x.phases;
    const int x = within % c.x.out * c.x.phases + phase % c.x.phases;
    return (at / pixels * c.y.out * c.y.phases + y) * c.x.out * c.x.phases + x;
  }
  __device__ __forceinline__ int residual_pixel(const Convolution& c, int row) const { return pixel(c, row); }
  __device__ __forceinline__ int image(const Convolution& c, int row) const {
    return (row0 + row) / (c.y.out * c.x.out);
  }
};
// Stores a piece of them by TMA, of the only phase.
__device__ __forceinline__ void store_piece(const RowRun& place, const CUtensorMap* map, std::uint32_t piece,
                                            int column) {
  ptx::tma_store_2d(map, piece, column, place.row0);
}

// A block's tile: rows from row0 on of a phase (row0 may lie past its last), channels from column0 on.
struct TileCoordinate {
  int phase, row0, column0;
};
template <class T, class Op>
__device__ __forceinline__ TileCoordinate tile_coordinate(const Arguments<T, Op>& args, int tile, int m_rank,
                                                          int block_m, int block_n) {
  const TileIndex index = args.order.locate(tile);
  const int phase = index.m_cluster / args.phase_clusters;
  const int within = index.m_cluster - phase * args.phase_clusters;
  return {phase, (within * args.multicast + m_rank) * block_m, index.n_tile * block_n};
}

}  // namespace noisefloor::convolution
