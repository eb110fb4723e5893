// The epilogue of ptx_sm90a_halo for tiles that are not split: a consumer's patch leaves in pieces of 8 x 8 pixels and
// up to 64 channels, finished in registers, put into shared memory by stmatrix in the layout in which TMA stores them.
// The residual's pieces have come the same way through the ring of the weights. TMA writes no pixel outside of the
// image; channels that are no multiple of 8 it cannot store, and the warps do. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_halo_layout.cuh"
#include "kernels/convolution/ptx_halo_statistics.cuh"
#include "kernels/convolution/ptx_sm90a_epilogue.cuh"
#include "kernels/product/sm90a_pieces.h"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/ldmatrix.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/stmatrix.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

// A finished piece, [64][kColumns] as TMA swizzles it, to pixels whose channels TMA cannot store.
template <int kColumns, class T>
__device__ __forceinline__ void store_narrow_piece(const Drain<T, Patch>& to, const std::uint8_t* piece, int column) {
  constexpr int kRow = kColumns * 2;  // bytes
  const int cout = to.args.epilogue.cout, row = static_cast<int>(threadIdx.x) % 128 / 2;
  if (!to.place.has(row)) return;
  T* const y = to.args.epilogue.y + std::int64_t{to.pixel(row)} * cout + column;
  const int swizzle = row / (128 / kRow) % (kRow / 16);
  for (int i = static_cast<int>(threadIdx.x) % 2; i < min(kColumns, cout - column); i += 2)
    y[i] = *reinterpret_cast<const T*>(piece + row * kRow + (i / 8 ^ swizzle) * 16 + i % 8 * 2);
}

// Stores a consumer's accumulators (Wgmma's layout). `residual` is where the patch's residual lies, one piece after the
// other, or 0; `buffer` the staging buffer whose turn it is. The accumulators move up behind each piece: a loop, since
// code that runs once has to come from L2 (docs/experiments/gemm, "code that runs once").
template <class T, int kTile, bool kFused>
__device__ __forceinline__ void store_patch(const Drain<T, Patch>& to, const CUtensorMap* map,
                                            float (&acc)[HaloLayout<kTile, kFused>::kShape.block_n / 2],
                                            std::uint32_t residual, int& buffer) {
  using L = HaloLayout<kTile, kFused>;
  constexpr int kColumns = L::kPieceColumns;
  constexpr int kPieceRow = kColumns * 2;  // bytes
  const Epilogue<T>& epilogue = to.args.epilogue;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = thread / 32, lane = thread % 32, quad_lane = lane % 4;
  // stmatrix and ldmatrix: lane l addresses row l % 8 of matrix l / 8; matrices 0 and 1 are the two row halves of a
  // block of 8 channels, 2 and 3 those of the next block.
  const int matrix_row = warp * 16 + lane % 16;
  const int swizzle = matrix_row / (128 / kPieceRow) % (kPieceRow / 16);
  const int first_at = matrix_row * kPieceRow + (lane / 16 ^ swizzle) * 16;
  const auto offset = [&](int block) { return static_cast<std::uint32_t>(first_at ^ block * 16); };
#pragma unroll 1
  for (int piece = 0; piece < L::kPieces; ++piece) {
    if (L::kBuffers == 1 && warp == 0 && ptx::elect_one()) ptx::tma_store_wait_read<0>();
    if (L::kBuffers == 1 || piece == 0) to.sync();  // the buffer is free, or what belongs to the channels is there
    const std::uint32_t target = ptx::shared_address(to.piece) + static_cast<std::uint32_t>(buffer * L::kPieceBytes);
    const std::uint32_t held = residual + static_cast<std::uint32_t>(piece * L::kPieceBytes);
#pragma unroll
    for (int block = 0; block < kColumns / 8; block += 4) {
      std::uint32_t words[2][4] = {};
      if (residual != 0) {
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          ptx::ldmatrix_x4(words[0][i], words[1][i], words[0][i + 1], words[1][i + 1], held + offset(block + i));
      }
      float v[2][8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = piece * kColumns + 8 * (block + i) + 2 * quad_lane;
        const auto mul = *reinterpret_cast<const float2*>(to.mul + column);
        const auto add = *reinterpret_cast<const float2*>(to.add + column);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          v[half][2 * i] = fmaf(acc[4 * (block + i) + 2 * half], mul.x, add.x);
          v[half][2 * i + 1] = fmaf(acc[4 * (block + i) + 2 * half + 1], mul.y, add.y);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        activate<T>(epilogue.act, v[half]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float low, high;
          unpack_pair<T>(words[half][i], low, high);
          words[half][i] =
              pack_pair<T>((v[half][2 * i] + low) * epilogue.gain, (v[half][2 * i + 1] + high) * epilogue.gain);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        ptx::stmatrix_x4(target + offset(block + i), words[0][i], words[1][i], words[0][i + 1], words[1][i + 1]);
    }
    ptx::fence_proxy_async_shared();  // of the writes of the store's piece, and of the reads of the residual's
    if constexpr (L::kBuffers > 1)
      if (warp == 0 && ptx::elect_one())
        ptx::tma_store_wait_read<L::kBuffers - 2>();  // the next piece's buffer is free
    to.sync();
    const bool narrow = L::kShape.block_n == kNarrowHalo && !stores_by_tma(to.args.c);
    if (narrow) {
      store_narrow_piece<kColumns>(to, to.piece + buffer * L::kPieceBytes, to.column0 + piece * kColumns);
    } else if (warp == 0 && ptx::elect_one()) {
      ptx::tma_store_4d(map, target, to.column0 + piece * kColumns, to.place.x0, to.place.y0, to.place.at_image);
      ptx::tma_store_commit();
    }
    if constexpr (kFused)
      if (to.args.c.stats)
        patch_statistics<kColumns>(to, to.piece + buffer * L::kPieceBytes, to.column0 + piece * kColumns, kColumns);
    buffer = (buffer + 1) % L::kBuffers;
#pragma unroll
    for (int i = 0; i + kColumns / 2 < L::kShape.block_n / 2; ++i) acc[i] = acc[i + kColumns / 2];
  }
}

}  // namespace noisefloor::convolution
