// The epilogue of ptx_sm90a_halo for tiles that are not split: a consumer's patch leaves in pieces of 8 x 8 pixels and
// up to 64 channels, finished in registers, put into shared memory by stmatrix in the layout in which TMA stores them.
// The residual's pieces have come the same way through the ring of the weights. TMA writes no pixel outside of the
// image; channels that are no multiple of 8 it cannot store, and the warps do. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_halo_layout.cuh"
#include "kernels/convolution/ptx_halo_statistics.cuh"
#include "kernels/convolution/ptx_sm90a_epilogue.cuh"
#include "kernels/product/sm90a_epilogue.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

// A finished piece, [64][kColumns] as TMA swizzles it, to pixels whose channels TMA cannot store.
template <int kColumns, class T>
__device__ __forceinline__ void store_narrow_piece(const EpilogueStore<T, Patch>& to, const std::uint8_t* piece,
                                                   int column) {
  constexpr int kRow = kColumns * 2;  // bytes
  const int cout = to.args.epilogue.columns, row = static_cast<int>(threadIdx.x) % 128 / 2;
  if (!to.place.has(row)) return;
  T* const y = to.args.epilogue.out + std::int64_t{to.pixel(row)} * cout + column;
  const int swizzle = row / (128 / kRow) % (kRow / 16);
  for (int i = static_cast<int>(threadIdx.x) % 2; i < min(kColumns, cout - column); i += 2)
    y[i] = *reinterpret_cast<const T*>(piece + row * kRow + (i / 8 ^ swizzle) * 16 + i % 8 * 2);
}

// A patch's way to the output. `residual` is where its residual lies, one piece after the other, or 0.
template <class T, int kTile, bool kFused>
struct ToPatch {
  using L = HaloLayout<kTile, kFused>;
  static constexpr int kColumns = L::kPieceColumns;
  product::StoreBuffers<L::kBuffers, L::kPieceBytes> buffers;
  const EpilogueStore<T, Patch>& to;
  const CUtensorMap* map;
  std::uint32_t residual;

  __device__ __forceinline__ std::uint32_t begin(int) const {
    buffers.await(false);
    return buffers.at();
  }
  template <int kBlocks, class Row>
  __device__ __forceinline__ void load(const Row& row, int piece, int block, std::uint32_t (&words)[2][4],
                                       std::uint32_t (&)[2][4]) const {
    if (residual != 0)
      row.template load<kBlocks>(residual + static_cast<std::uint32_t>(piece * L::kPieceBytes), block, words);
  }
  __device__ __forceinline__ void end(int piece) const {
    const int column = to.column0 + piece * kColumns;
    const std::uint8_t* const here = to.piece + buffers.ring.stage * L::kPieceBytes;
    const bool narrow = L::kShape.block_n == kNarrowHalo && !stores_by_tma(to.args.c);
    buffers.hand_over(false, [&] {
      if (narrow) return;
      ptx::tma_store_4d(map, buffers.at(), column, to.place.x0, to.place.y0, to.place.at_image);
      ptx::tma_store_commit();
    });
    if (narrow) store_narrow_piece<kColumns>(to, here, column);
    if constexpr (kFused)
      if (to.args.c.stats) patch_statistics<kColumns>(to, here, column, kColumns);
    buffers.ring.advance(L::kBuffers);
  }
};

// Stores a consumer's accumulators. Most convolutions of a network have neither activation, residual nor gain behind
// them.
inline constexpr Finish kPlain{.residual = Finish::Residual::none}, kAny{.act = true, .gain = true};
template <class T, int kTile, bool kFused, Finish kFinish>
__device__ __forceinline__ void store_patch(const EpilogueStore<T, Patch>& to, const CUtensorMap* map,
                                            float (&acc)[HaloLayout<kTile, kFused>::kShape.block_n / 2],
                                            std::uint32_t residual, ptx::Ring& buffer) {
  using L = HaloLayout<kTile, kFused>;
  constexpr int kBlockN = L::kShape.block_n, kColumns = L::kPieceColumns;
  if constexpr (L::kBuffers > 1) to.sync();  // what belongs to the channels is there
  const ChannelTerms<T, Patch> terms{to};
  const auto barrier = static_cast<std::uint32_t>(to.barrier);
  const ToPatch<T, kTile, kFused> way{{ptx::shared_address(to.piece), barrier, buffer}, to, map, residual};
  product::store_accumulator<T, kFinish, kBlockN, kColumns, true, kColumns / 8, 2>(acc, terms, way);
}

}  // namespace noisefloor::convolution
