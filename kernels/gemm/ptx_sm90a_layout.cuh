// What a block of ptx_sm90a is given: its arguments, its place in D and its shared memory. Device code only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/ptx_sm90a_partials.cuh"
#include "kernels/gemm/ptx_sm90a_residual.cuh"
#include "kernels/gemm/schedule.h"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/product/sm90a_pieces.h"
#include "kernels/product/sm90a_schedule.h"
#include "kernels/product/tile_order.h"

namespace noisefloor::gemm {

using product::Barriers;
using product::kSwizzleAtom;
using product::TileIndex;
using product::WarpRole;

template <class T>
struct Arguments {
  Epilogue<T> epilogue;
  T* d;
  int m, n, k_steps;
  product::Rasterisation order;
  Divider part_tiles;                         // tiles along n of a part of D
  int second_half;                            // rows of B from a tile's first half of block_n to its second
  int stages, early, multicast, multicast_a;  // early: stages whose rows of B are constant, and come first
  product::DsmemBuffer dsmem;
  Divider splits;
};

// Of layouts nn and tn. With parts of k, which clusters take one after the other, D and the row sums are those of the
// first part, which the others' follow.
template <class T>
struct GradientArguments : Arguments<T> {
  float* row_sums;     // null: none
  Divider all_splits;  // of all parts
};
// Of a cluster: its part of k and its (first) tile. Where there are parts, a cluster has one tile.
struct InParts {
  int part, tile;
};
template <Layout kLayout>
__device__ __forceinline__ InParts place_in_parts(int cluster, int tiles) {
  if constexpr (kLayout != Layout::tn) return {0, cluster};
  return {cluster / tiles, cluster % tiles};
}
template <Layout kLayout, class Args>
__device__ __forceinline__ product::StepRange steps_of(const Args& args, int part, int split) {
  if constexpr (kLayout == Layout::tn)
    return {args.k_steps, part * args.splits + split, args.all_splits};
  else
    return {args.k_steps, split, args.splits};
}
constexpr product::Majors majors_of(Layout layout, const Tile& tile) {
  return {.a = layout == Layout::tn, .b = layout != Layout::nt, .b_columns = tile.block_n % 64 == 0 ? 64 : 32};
}

// Shared memory of a block: stages of A rows and B rows, then the buffers of stores, the bias (with a shift of all
// rows) in fp32 and the barriers.
template <int kTile>
struct BlockLayout : product::Sm90aBlock<kTiles[kTile]> {
  using Block = product::Sm90aBlock<kTiles[kTile]>;
  using Block::kShape, Block::kStageBytes;
  // Per consumer, as is the bias. In ping-pong 16 KB: four pieces of 32 columns.
  static constexpr int kStoreBytes =
      std::max({product::store_bytes(kShape.consumers, kShape.block_n),
                product::store_bytes(kShape.consumers, kShape.block_n / 2), kShape.pingpong ? 16 * 1024 : 0});
  static constexpr int kBiasBytes = kShape.block_n * 4;
  static constexpr int kAlignment = 128;  // that the language gives; stages lie at a kSwizzleAtom

  static constexpr int bytes(int stages) {
    return kSwizzleAtom - kAlignment + stages * kStageBytes + kShape.consumers * (kStoreBytes + kBiasBytes) +
           Barriers::bytes(stages) + (kShape.pingpong ? kShape.consumers * ResidualBuffers::kBytes : 0);
  }
  // Split-K partial sums arrive in stages; the widest tiles are never split.
  static constexpr bool kCanSplit = can_split(kShape);
  static constexpr int kDsmemStages = product::stages_for(kDsmemBytes<kShape.block_m(), kShape.block_n>, kStageBytes);
  static_assert(!kCanSplit || kDsmemStages <= kShape.stages, "room to reduce");
  // Where the tile is split nothing is staged for a store, and the residual of a block's share waits there.
  static_assert(!kCanSplit || kShape.block_m() / 2 * kShape.block_n * 2 <= kShape.consumers * kStoreBytes,
                "room for a share's residual");
  static constexpr __host__ __device__ ResidualPieces residual(bool gated) {
    constexpr ResidualPieces kPlain = product::residual_pieces(kShape.consumers, kShape.block_n, false);
    constexpr ResidualPieces kGated = product::residual_pieces(kShape.consumers, kShape.block_n, true);
    return gated ? kGated : kPlain;
  }
  static_assert(kShape.pingpong || (std::max(residual(false).stages(), residual(true).stages()) <= kMaxResidualStages &&
                                    kMaxResidualStages + 1 < kShape.stages),
                "room for a residual in the ring");
  static_assert(Block::fits(bytes(kShape.stages), bytes(kShape.deep_stages)), "shared memory of an SM and of a block");
};

}  // namespace noisefloor::gemm
