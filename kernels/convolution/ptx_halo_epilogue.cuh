// The epilogue of ptx_sm90a_halo for tiles that are not split: a consumer's patch of 8 x 8 pixels. The residual's
// pieces have come through the ring of the weights, in the layout of the stores'. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_halo_layout.cuh"
#include "kernels/convolution/ptx_halo_statistics.cuh"
#include "kernels/convolution/ptx_sm90a_epilogue.cuh"
#include "kernels/ptx/ring.cuh"

namespace noisefloor::convolution {

// A patch's residual, one piece after the other in shared memory; at 0 there is none.
template <int kPieceBytes>
struct PatchResidual {
  std::uint32_t at;

  template <int kBlocks, class Row>
  __device__ __forceinline__ void load(const Row& row, int piece, int block, std::uint32_t (&words)[2][4]) const {
    if (at != 0) row.template load<kBlocks>(at + static_cast<std::uint32_t>(piece * kPieceBytes), block, words);
  }
};

// Stores a consumer's accumulators. Most convolutions of a network have neither activation, residual nor gain behind
// them.
inline constexpr Finish kPlain{.residual = Finish::Residual::none}, kAny{.act = true, .gain = true},
    kWeighed{.weighs = true};
template <class T, int kTile, bool kFused, Finish kFinish, class Op>
__device__ __forceinline__ void store_patch(const EpilogueStore<T, Patch, Op>& to, const CUtensorMap* map,
                                            float (&acc)[HaloLayout<kTile, kFused>::kShape.block_n / 2],
                                            std::uint32_t residual, ptx::Ring& buffer) {
  using L = HaloLayout<kTile, kFused>;
  constexpr int kBlockN = L::kShape.block_n, kColumns = L::kPieceColumns;
  const bool by_tma = kBlockN != kNarrowHalo || stores_by_tma(to.args.c);
  store_accumulator<kFinish, kBlockN, L::kBuffers, kColumns, kColumns / 8, 2, kFused>(
      to, map, by_tma, acc, PatchResidual<L::kPieceBytes>{residual}, buffer);
}

}  // namespace noisefloor::convolution
