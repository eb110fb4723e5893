// Where the epilogue of ptx_sm90a finds a tile's residual: in the ring of stages, or, in ping-pong, where the sum will
// be staged for its store. Device code only.
#pragma once

#include <cstdint>

#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/product/sm90a_pieces.h"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::gemm {

using product::buffers_in;
using product::kMostBuffers;
using product::ResidualPieces;
using product::store_columns;
using product::store_swizzled;
inline constexpr int kMaxResidualStages = product::kMostOfResidual;

// In the ring, one or two steps behind the products: rows 64 * row_block onward of each piece.
template <int kConsumers, ResidualPieces kPieces>
struct RingResidual {
  static constexpr bool kInPlace = false;
  static_assert(kMaxResidualStages == 2, "a piece waits in the first stage or in the second");
  const product::WarpRole<kConsumers>& role;
  const product::Barriers& barriers;
  std::uint32_t stages_at;
  int stage_bytes, row_block;
  int first, second;  // its stages

  __device__ __forceinline__ int stage_of(int piece) const { return piece < kPieces.per_stage ? first : second; }
  __device__ __forceinline__ std::uint32_t at(int piece) const {
    return stages_at +
           static_cast<std::uint32_t>(stage_of(piece) * stage_bytes + piece % kPieces.per_stage * kPieces.bytes +
                                      row_block * 64 * kPieces.columns * 2);
  }
  // The warpgroup has read a piece.
  __device__ __forceinline__ void read(int piece) const {
    if (kPieces.last_of_stage(piece)) barriers.release(role, stage_of(piece));
  }
};

// The buffers of a consumer's stores, to which a warp of the producer brings the residual's pieces in their order: a
// ring of stages would be held by one consumer's epilogue while the other's products need it.
struct ResidualBuffers {
  static constexpr bool kInPlace = true;
  std::uint32_t full, empty;  // mbarriers of the first buffer

  static constexpr int kBytes = kMostBuffers * 2 * 8;  // of a consumer's mbarriers
  __device__ __forceinline__ ResidualBuffers(std::uint32_t barriers, int consumer)
      : full(barriers + consumer * kBytes), empty(full + kMostBuffers * 8) {}

  // By one thread, before fence_mbarrier_init.
  __device__ __forceinline__ void init() const {
#pragma unroll 1
    for (int i = 0; i < kMostBuffers * 2; ++i) ptx::mbarrier_init(full + i * 8, 1);
  }
  // By one thread: the pieces of 64 rows from `row` and of the tile's columns from `column` on, when there is room.
  // Each piece of a blend (null: none) comes behind the residual's.
  __device__ __forceinline__ void load(const CUtensorMap* residual, const CUtensorMap* blend,
                                       const ResidualPieces& pieces, std::uint32_t staging, int buffers,
                                       ptx::Ring& ring, int row, int column) const {
    const int bytes = 64 * pieces.columns * 2;
    const int end = column + pieces.count * pieces.columns;
    const CUtensorMap* map = residual;
#pragma unroll 1
    for (; column < end; ring.advance(buffers)) {
      const std::uint32_t barrier = full + ring.stage * 8;
      ptx::mbarrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>(bytes));
      ptx::tma_load_2d(staging + ring.stage * bytes, map, barrier, column, row);
      const bool blend_follows = blend && map == residual;
      map = blend_follows ? blend : residual;
      if (!blend_follows) column += pieces.columns;
    }
  }
  __device__ __forceinline__ void await(const ptx::Ring& ring) const {
    ptx::mbarrier_wait(full + ring.stage * 8, ring.parity);
  }
  // The thread that stores, behind its store of buffer `stage`: that of the piece before (or, of one, this) is free.
  template <int kBuffers>
  __device__ __forceinline__ void release(int stage, bool first) const {
    ptx::tma_store_wait_read<(kBuffers > 1 ? 1 : 0)>();
    if (kBuffers == 1 || !first) ptx::mbarrier_arrive(empty + (stage + kBuffers - (kBuffers > 1)) % kBuffers * 8);
  }
  // The same of a pair of buffers, residual and blend, which are free at once: else two buffers would not serve.
  __device__ __forceinline__ void release_pair(int stage) const {
    ptx::tma_store_wait_read<0>();
    ptx::mbarrier_arrive(empty + stage * 8);
    ptx::mbarrier_arrive(empty + (stage + 1) * 8);
  }
};

}  // namespace noisefloor::gemm
