// What a block of ptx_sm90a_halo is given: its arguments, its patches of the output and its shared memory. Device code
// only.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "kernels/convolution/halo.h"
#include "kernels/convolution/ptx_sm90a_layout.cuh"
#include "kernels/product/sm90a_pieces.h"

namespace noisefloor::convolution {

template <class T, class Op = Outputs>
struct HaloArguments : Output<T, Op> {
  HaloTiling tiling;
  product::Rasterisation order;
  int tap_steps, k_steps;        // a step: a tap of 64 channels; behind them those of a second source
  int halo_stages, halo_bytes;   // bytes of a stage
  const float* norm;             // as in Operands; null without a norm
  int region_bytes;              // of the rings
  int stages, early, multicast;  // early: stages whose weights are constant, and come first
  product::DsmemBuffer dsmem;    // of the weights' stages
  Divider splits;
};

// The maps of the output's or the residual's pixels, one a phase: TMA takes the phase's pixels as an image of their
// own. Of the output's four axes; of the residual's see encode_residual().
struct PhaseMaps {
  CUtensorMap phase[kMostPhases];
};

// Shared memory of a block: stages of halos, then of weight rows; per consumer the buffers of stores, and a multiplier
// and addend per channel; then the barriers. kFused: there may be a norm in front and statistics behind. Three more
// warps of the producer's warpgroup norm the halos, and it gives registers to the consumers (setmaxnreg).
template <int kTile, bool kFused>
struct HaloLayout {
  static constexpr Tile kShape = kHaloTiles[kTile];
  static constexpr int kWeightBytes = kShape.block_n * kRowBytes;
  static constexpr int kPieceColumns = product::store_columns(kShape.block_n);
  static constexpr int kPieces = kShape.block_n / kPieceColumns;
  static constexpr int kPieceBytes = 64 * kPieceColumns * 2;
  static constexpr int kStoreBytes = staging_bytes(kShape.consumers, kShape.block_n, /*split=*/false);
  static constexpr int kBuffers = product::buffers_in(kStoreBytes, kShape.block_n);
  static constexpr bool kMoveRegisters = kFused || (kShape.consumers == 2 && kShape.block_n > 192);  // as in Layout
  static constexpr int kProducerRegisters = kFused ? 72 : 40;
  static constexpr int kConsumerRegisters = !kFused ? 232 : kShape.consumers == 2 ? 216 : 184;
  static constexpr int kThreads = kShape.consumers * 128 + (kMoveRegisters ? 128 : 32);
  // What a block has at its start, in whole eights a thread, is what there is to move.
  static constexpr int kStartRegisters = 65536 / (kThreads * kShape.blocks_per_sm) / 8 * 8;
  static_assert(!kMoveRegisters ||
                    kProducerRegisters + kShape.consumers * kConsumerRegisters <= kThreads / 128 * kStartRegisters,
                "an SM's registers");
  static constexpr bool kCanSplit = can_split_halo(kShape, 2);
  static_assert(kStoreBytes % kSwizzleAtom == 0 && kSplitStaging % kSwizzleAtom == 0, "TMA swizzles by the address");
  static_assert(kPieces * kPieceBytes == kWeightBytes, "a consumer's residual fills a stage");
  static_assert(product::store_swizzled(kShape.block_n), "pieces of 32 or 64 channels");
  static_assert(kWeightBytes / 2 % kSwizzleAtom == 0, "each half of the weights must be whole swizzle atoms");
  static constexpr bool has_room() {  // for a residual beside a step, whatever the taps
    const int budget = ring_budget(kShape.consumers, kShape.block_n, kShape.blocks_per_sm, /*split=*/false);
    for (const bool beside : {false, true})
      for (int taps = 1; taps <= kHaloTaps * kHaloTaps; ++taps)
        if (rings_for(budget, kShape.block_n, largest_halo(kShape.consumers), taps, beside).weights <= kShape.consumers)
          return false;
    return true;
  }
  static_assert(has_room(), "room for a residual in the ring");
};

// Stores a piece of a patch by TMA, which writes no pixel outside of the image.
__device__ __forceinline__ void store_piece(const Patch& place, const CUtensorMap* map, std::uint32_t piece,
                                            int column) {
  ptx::tma_store_4d(map, piece, column, place.x0, place.y0, place.at_image);
}

// The mbarriers of the halos, which each block loads for itself. `ready`: consumers may read it; that is `full`, or
// with a norm, when it has been normed.
template <int kConsumers, bool kFused>
struct HaloBarriers {
  static constexpr int kNormWarps = 3;
  std::uint32_t full, empty, ready;

  __device__ __forceinline__ HaloBarriers(std::uint32_t first, int stages, bool norm)
      : full(first), empty(first + stages * 8), ready(kFused && norm ? empty + stages * 8 : full) {}
  // As those of the weights, and before them: the fence behind those, of the same elected threads, covers these.
  __device__ __forceinline__ void init(const WarpRole<kConsumers>& role, int stages) const {
    if (!ptx::elect_one()) return;
#pragma unroll 1
    for (int stage = role.warp; stage < stages; stage += kConsumers * 4) {
      ptx::mbarrier_init(full + stage * 8, 1);
      ptx::mbarrier_init(empty + stage * 8, kConsumers * 4);
      if constexpr (kFused)
        if (ready != full) ptx::mbarrier_init(ready + stage * 8, kNormWarps);
    }
  }
  __device__ __forceinline__ void release(int lane, int stage) const {  // a warp's part
    if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
  }
};

}  // namespace noisefloor::convolution
