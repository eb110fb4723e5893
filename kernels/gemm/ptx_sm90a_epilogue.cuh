// The epilogue of ptx_sm90a from accumulator registers; that from a split tile's partial sums is in
// ptx_sm90a_partials.cuh. Device code only.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/device/vector.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/ptx_sm90a_pieces.h"
#include "kernels/gemm/ptx_sm90a_residual.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/ldmatrix.cuh"
#include "kernels/ptx/stmatrix.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::gemm {

// Where a block's tile lies: rows [row0, rows) and output columns [column0, columns) of the product; of D from
// `part_column` of part `part` on.
struct TilePosition {
  std::int64_t row0;
  std::int64_t rows;
  int column0;
  int columns;
  int part, part_column;
};

// The activation of 8 values, its switch outside the loop.
template <class T>
__device__ __forceinline__ void activate_8(Activation act, float (&v)[8]) {
  switch (act) {
    case Activation::silu:
#pragma unroll
      for (float& x : v) x = times_sigmoid<T>(x, x);
      break;
    case Activation::gelu:
#pragma unroll
      for (float& x : v) x = gelu<T>(x);
      break;
    case Activation::gelu_tanh:
#pragma unroll
      for (float& x : v) x = gelu_tanh<T>(x);
      break;
    default:
      break;
  }
}

// The bias of the tile's kBlockN rows of B (column0 onward; geglu: half values, half gates), and the shift of all rows
// where they have one in common (null: none), go by way of shared memory, summed: each thread of a warpgroup loads a
// pair of each before the products begin, which hides the loads' latency, and writes their sum when the accumulator is
// done. Pairs outside D are zero.
struct BiasPair {
  std::uint32_t bias, shift;
};
template <class T, int kBlockN>
__device__ __forceinline__ BiasPair load_bias_pair(const Epilogue<T>& epilogue, const T* shift, int column0) {
  const int row = static_cast<int>(threadIdx.x) % 128 * 2;
  const int half = epilogue.gated() ? kBlockN / 2 : kBlockN;
  const int column = column0 + row % half;
  if (row >= kBlockN || column >= epilogue.n) return {0, 0};
  const T* bias = epilogue.bias + column + (row >= half ? epilogue.n : 0);
  return {epilogue.bias ? __ldg(reinterpret_cast<const unsigned*>(bias)) : 0,
          shift ? __ldg(reinterpret_cast<const unsigned*>(shift + column)) : 0};
}
template <class T, int kBlockN>
__device__ __forceinline__ void write_bias_pair(const BiasPair& pair, float2* bias) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  float2 sum, shift;
  unpack_pair<T>(pair.bias, sum.x, sum.y);
  unpack_pair<T>(pair.shift, shift.x, shift.y);
  if (thread * 2 < kBlockN) bias[thread] = make_float2(sum.x + shift.x, sum.y + shift.y);
}

// What happens to an accumulator, known at compile time so that the common cases are free of branches. `activate`,
// `shift` and `gate` add a residual where there is one. `shift` activates, too, behind the shifts of rows that belong
// to several images, each its own. `blend` adds a residual, does not activate, and blends the sum.
enum class Finish { linear, add, activate, shift, gate, blend };

// kBlocks 8-column blocks of an accumulator's rows `half` (0: row, 1: row + 8) of the pairs a thread holds (Wgmma),
// finished and packed: words[i], in which the residual's pair arrives (or zero), is this lane's pair of block `first` +
// i, with others[i] that of a blend, of share `share`. `bias` is that of the accumulator's first column, `shift` the
// lane's of block `first`, from which on D has `columns` more.
template <class T, int kBlockN, Finish kFinish, int kBlocks>
__device__ __forceinline__ void finish_blocks(const float (&acc)[kBlockN / 2], int first, int half, const float2* bias,
                                              const T* shift, int columns, const Epilogue<T>& epilogue,
                                              std::uint32_t (&words)[4], const std::uint32_t (&others)[4],
                                              float share) {
  const int quad_lane = static_cast<int>(threadIdx.x) % 4;
  float v[8];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const int index = 4 * (first + i) + 2 * half;
    const float2 add = bias[4 * (first + i) + quad_lane];
    v[2 * i] = fmaf(epilogue.scale, acc[index], add.x);
    v[2 * i + 1] = fmaf(epilogue.scale, acc[index + 1], add.y);
    if constexpr (kFinish == Finish::gate) {
      const float2 add_gate = bias[kBlockN / 4 + 4 * (first + i) + quad_lane];
      v[2 * i] = epilogue.gate(v[2 * i], fmaf(epilogue.scale, acc[index + kBlockN / 4], add_gate.x));
      v[2 * i + 1] = epilogue.gate(v[2 * i + 1], fmaf(epilogue.scale, acc[index + kBlockN / 4 + 1], add_gate.y));
    }
    if constexpr (kFinish == Finish::shift) {
      if (8 * i < columns) {
        float low, high;
        unpack_pair<T>(__ldg(reinterpret_cast<const unsigned*>(shift + 8 * i)), low, high);
        v[2 * i] += low, v[2 * i + 1] += high;
      }
    }
  }
  if constexpr (kFinish == Finish::activate || kFinish == Finish::shift) activate_8<T>(epilogue.act, v);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    float low = 0;
    float high = 0;
    if constexpr (kFinish != Finish::linear) unpack_pair<T>(words[i], low, high);
    low += v[2 * i], high += v[2 * i + 1];
    if constexpr (kFinish == Finish::blend) {
      float other_low, other_high;
      unpack_pair<T>(others[i], other_low, other_high);
      low = blended(low, other_low, share);
      high = blended(high, other_high, share);
    }
    words[i] = pack_pair<T>(low, high);
  }
}

// Stores a warpgroup's 64 x kBlockN accumulator through shared memory, in pieces of 64 rows x store_columns: stmatrix
// puts a piece into a buffer at `staging` in the layout of map_d, one thread hands it to TMA, and the next piece (or
// tile) goes on while it drains. ldmatrix reads the residual's piece, which has the same layout, from where `residual`
// says (ptx_sm90a_residual.cuh), and a blend's from the buffer behind. `barrier` is a hardware barrier for the
// warpgroup alone; `first`: its first tile's first rows.
//
// A loop of pieces and, where there is much to do for a number, of a few blocks, in each of which the accumulator moves
// up: code that runs once a launch has to come from L2 (docs/experiments/gemm, "code that runs once").
template <class T, int kBlockN, Finish kFinish, int kBuffers, class Residual>
__device__ __forceinline__ void store_accumulator(float (&acc)[kBlockN / 2], const float2* bias,
                                                  const Epilogue<T>& epilogue, const CUtensorMap& map_d,
                                                  std::uint32_t staging, std::uint32_t barrier, ptx::Ring& buffer,
                                                  const TilePosition& at, const Residual& residual, bool first) {
  constexpr int kTileColumns = kFinish == Finish::gate ? kBlockN / 2 : kBlockN;
  constexpr int kColumns = store_columns(kTileColumns);
  constexpr int kBlocks = kColumns / 8;
  constexpr bool kMuch = kFinish == Finish::activate || kFinish == Finish::gate;
  // Blocks of an iteration: few where there is much to do (or shifts take registers), all where that spares the moves.
  constexpr bool kOnce = kFinish == Finish::gate && kBlocks <= 8 && kColumns == kTileColumns;
  constexpr int kMost = kFinish == Finish::shift ? 2 : kMuch && !kOnce ? 4 : kBlocks;
  constexpr int kStep = kBlocks % kMost == 0 ? kMost : kBlocks % 2 == 0 ? 2 : kBlocks;
  constexpr int kRowBytes = kColumns * 2;
  constexpr int kPieces = kTileColumns / kColumns;
  constexpr bool kBlend = kFinish == Finish::blend;
  static_assert(!kBlend || (Residual::kInPlace && kBuffers % 2 == 0), "pairs of buffers");
  const float share = kBlend ? __ldg(epilogue.share) : 0;
  const bool add = kFinish == Finish::add || kBlend || (kFinish != Finish::linear && epilogue.residual);
  const bool in_place = Residual::kInPlace && add;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = thread / 32, lane = thread % 32;
  // stmatrix and ldmatrix: lane l addresses row l % 8 of matrix l / 8; matrices 0 and 1 are the two row halves of a
  // block, 2 and 3 those of the next block.
  const int matrix_row = thread / 32 * 16 + lane % 16;
  const int swizzle = store_swizzled(kTileColumns) ? matrix_row / (128 / kRowBytes) % (kRowBytes / 16) : 0;
  const auto offset = [&](int block) {
    return static_cast<std::uint32_t>(matrix_row * kRowBytes + ((block + lane / 16) ^ swizzle) * 16);
  };
  // Of the lane's rows; one outside D takes the last one's.
  int image[2] = {};
  if constexpr (kFinish == Finish::shift) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      image[half] = epilogue.image(min(at.row0 + thread / 32 * 16 + lane / 4 + 8 * half, at.rows - 1));
  }
  // Of the lane's pairs in rows `half`, from tile column `column` on.
  const auto shift_from = [&](int half, int column) -> const T* {
    if (kFinish != Finish::shift) return nullptr;
    return epilogue.image_shift + std::int64_t{image[half]} * at.columns + (at.column0 + column + 2 * (lane % 4));
  };
  const auto move_up = [&] {
#pragma unroll
    for (int i = 0; i + 4 * kStep < kBlockN / 2; ++i) acc[i] = acc[i + 4 * kStep];
    bias += 4 * kStep;
  };
#pragma unroll 1
  for (int piece = 0; piece < kPieces; ++piece) {
    if constexpr (kBuffers == 1) {
      if (!in_place && warp == 0 && ptx::elect_one()) ptx::tma_store_wait_read<0>();
      ptx::named_barrier_sync(barrier, 128);
    }
    const std::uint32_t target = staging + static_cast<std::uint32_t>(buffer.stage * 64 * kRowBytes);
    std::uint32_t residual_at = target;
    if constexpr (Residual::kInPlace) {
      if (add) residual.await(buffer);
      if constexpr (kBlend) residual.await({buffer.stage + 1, buffer.parity});
    } else {
      residual_at = residual.at(piece);
    }
    // Blocks of the accumulator from `block` on, which lie behind `done` others of the piece.
    const auto write = [&]<int kCount>(int done, int block, std::integral_constant<int, kCount>) {
      std::uint32_t words[2][4] = {}, others[2][4] = {};
      const auto read = [&](std::uint32_t from, std::uint32_t(&to)[2][4]) {
#pragma unroll
        for (int i = 0; i + 1 < kCount; i += 2)
          ptx::ldmatrix_x4(to[0][i], to[1][i], to[0][i + 1], to[1][i + 1], from + offset(done + block + i));
        if constexpr (kCount % 2 == 1)
          ptx::ldmatrix_x2(to[0][kCount - 1], to[1][kCount - 1], from + offset(done + block + kCount - 1));
      };
      if (add) read(residual_at, words);
      if constexpr (kBlend) read(target + 64 * kRowBytes, others);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = piece * kColumns + 8 * (done + block);
        finish_blocks<T, kBlockN, kFinish, kCount>(acc, block, half, bias, shift_from(half, column),
                                                   at.columns - at.column0 - column, epilogue, words[half],
                                                   others[half], share);
      }
#pragma unroll
      for (int i = 0; i + 1 < kCount; i += 2)
        ptx::stmatrix_x4(target + offset(done + block + i), words[0][i], words[1][i], words[0][i + 1], words[1][i + 1]);
      if constexpr (kCount % 2 == 1)
        ptx::stmatrix_x2(target + offset(done + block + kCount - 1), words[0][kCount - 1], words[1][kCount - 1]);
    };
#pragma unroll 1
    for (int done = 0; done < kBlocks; done += kStep) {
#pragma unroll
      for (int block = 0; block + 4 <= kStep; block += 4) write(done, block, std::integral_constant<int, 4>{});
      if constexpr (kStep % 4 != 0) write(done, kStep / 4 * 4, std::integral_constant<int, kStep % 4>{});
      if constexpr (kStep < kTileColumns / 8) move_up();
    }
    ptx::fence_proxy_async_shared();  // of the writes of the store's piece, and of the reads of the residual's
    if constexpr (kBuffers > 1)
      if (!in_place && warp == 0 && ptx::elect_one())
        ptx::tma_store_wait_read<kBuffers - 2>();  // the next piece's buffer is free
    ptx::named_barrier_sync(barrier, 128);
    if (warp == 0 && ptx::elect_one()) {
      ptx::tma_store_3d(&map_d, target, at.part_column + piece * kColumns, static_cast<int>(at.row0), at.part);
      ptx::tma_store_commit();
      if constexpr (kBlend)
        residual.release_pair(buffer.stage);
      else if constexpr (Residual::kInPlace)
        if (add) residual.template release<kBuffers>(buffer.stage, first && piece == 0);
    }
    if constexpr (!Residual::kInPlace)
      if (add) residual.read(piece);
    buffer.advance(kBuffers);
    if constexpr (kBlend) buffer.advance(kBuffers);
  }
}

}  // namespace noisefloor::gemm
