// The epilogue of ptx_sm90a from accumulator registers; that from a split tile's partial sums is in
// ptx_sm90a_partials.cuh. Device code only.
#pragma once

#include <cstdint>

#include "kernels/device/vector.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/ptx_sm90a_residual.cuh"
#include "kernels/product/sm90a_epilogue.cuh"
#include "kernels/product/sm90a_mainloop.cuh"

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
  const int half = epilogue.gated ? kBlockN / 2 : kBlockN;
  const int column = column0 + row % half;
  if (row >= kBlockN || column >= epilogue.columns) return {0, 0};
  const T* bias = epilogue.bias + column + (row >= half ? epilogue.columns : 0);
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

using product::Finish;
inline constexpr Finish kLinear{.residual = Finish::Residual::none}, kAdd{.residual = Finish::Residual::always},
    kActivate{.act = true}, kShift{.act = true, .shift = true}, kGate{.gate = true},
    kBlend{.residual = Finish::Residual::always, .blend = true};

// What belongs to a lane's pairs in blocks of 8 columns of the tile (product::finish_blocks).
template <class T, int kBlockN>
struct TileTerms {
  const Epilogue<T>& epilogue;
  const float2* bias;
  float share;        // of a blend
  const T* shift[2];  // of the rows' halves
  int columns;        // of D, from the tile's first on

  __device__ __forceinline__ float2 factor(int) const { return make_float2(epilogue.scale, epilogue.scale); }
  __device__ __forceinline__ float2 addend(int column) const { return bias[column / 2]; }
  __device__ __forceinline__ float2 gate_addend(int column) const { return bias[(kBlockN / 2 + column) / 2]; }
  __device__ __forceinline__ float gate(float v, float sum) const { return epilogue.gate(v, sum); }
  __device__ __forceinline__ void add_shift(int half, int column, float& low, float& high) const {
    if (column >= columns) return;
    float first, second;
    unpack_pair<T>(__ldg(reinterpret_cast<const unsigned*>(shift[half] + column)), first, second);
    low += first, high += second;
  }
  template <int kCount>
  __device__ __forceinline__ void activate(float (&v)[kCount]) const {
    epilogue.activate(v);
  }
  __device__ __forceinline__ float blended(float v, float other) const { return product::blended(v, other, share); }
};

// A tile's way to D by TMA. ldmatrix reads the residual's subtile, which has the layout of the store's, from where
// `residual` says (ptx_sm90a_residual.cuh), and a blend's from the buffer behind. `first`: a warpgroup's first tile's
// first rows.
template <Finish kFinish, int kBuffers, int kColumns, class Residual>
struct ToD {
  static constexpr int kBytes = 64 * kColumns * 2;
  static constexpr bool kBlend = kFinish.blend;
  static_assert(!kBlend || (Residual::kInPlace && kBuffers % 2 == 0), "pairs of buffers");
  product::StoreBuffers<kBuffers, kBytes> buffers;
  const CUtensorMap& map_d;
  const TilePosition& at;
  const Residual& residual;
  bool add, first;

  __device__ __forceinline__ bool in_place() const { return Residual::kInPlace && add; }
  __device__ __forceinline__ std::uint32_t begin(int) const {
    buffers.await(in_place());
    if constexpr (Residual::kInPlace) {
      if (add) residual.await(buffers.ring);
      if constexpr (kBlend) residual.await({buffers.ring.stage + 1, buffers.ring.parity});
    }
    return buffers.at();
  }
  template <int kBlocks, class Row>
  __device__ __forceinline__ void load(const Row& row, int subtile, int block, std::uint32_t (&words)[2][4],
                                       std::uint32_t (&others)[2][4]) const {
    std::uint32_t from = buffers.at();
    if constexpr (!Residual::kInPlace) from = residual.at(subtile);
    if (add) row.template load<kBlocks>(from, block, words);
    if constexpr (kBlend) row.template load<kBlocks>(buffers.at() + kBytes, block, others);
  }
  __device__ __forceinline__ void end(int subtile) const {
    buffers.hand_over(in_place(), [&] {
      ptx::tma_store_3d(&map_d, buffers.at(), at.part_column + subtile * kColumns, static_cast<int>(at.row0), at.part);
      ptx::tma_store_commit();
      if constexpr (kBlend)
        residual.release_pair(buffers.ring.stage);
      else if constexpr (Residual::kInPlace)
        if (add) residual.template release<kBuffers>(buffers.ring.stage, first && subtile == 0);
    });
    if constexpr (!Residual::kInPlace)
      if (add) residual.read(subtile);
    buffers.ring.advance(kBuffers);
    if constexpr (kBlend) buffers.ring.advance(kBuffers);
  }
};

// Stores a warpgroup's 64 x kBlockN accumulator. `bias` is that of the tile, which TMA's buffers at `staging` follow.
template <class T, int kBlockN, Finish kFinish, int kBuffers, class Residual>
__device__ __forceinline__ void store_accumulator(float (&acc)[kBlockN / 2], const float2* bias,
                                                  const Epilogue<T>& epilogue, const CUtensorMap& map_d,
                                                  std::uint32_t staging, std::uint32_t barrier, ptx::Ring& buffer,
                                                  const TilePosition& at, const Residual& residual, bool first) {
  constexpr int kTileColumns = kFinish.gate ? kBlockN / 2 : kBlockN;
  constexpr int kColumns = store_columns(kTileColumns), kBlocks = kColumns / 8;
  // Blocks of an iteration: few where there is much to do (or shifts take registers), all where that spares the moves.
  constexpr bool kOnce = kFinish.gate && kBlocks <= 8 && kColumns == kTileColumns;
  constexpr int kMost = kFinish.shift ? 2 : (kFinish.act || kFinish.gate) && !kOnce ? 4 : kBlocks;
  constexpr int kStep = kBlocks % kMost == 0 ? kMost : kBlocks % 2 == 0 ? 2 : kBlocks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  TileTerms<T, kBlockN> terms{epilogue, bias + lane % 4, kFinish.blend ? __ldg(epilogue.share) : 0, {}, 0};
  if constexpr (kFinish.shift) {
    terms.columns = at.columns - at.column0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the lane's rows; one outside D takes the last one's
      const std::int64_t row = at.row0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4 + 8 * half;
      terms.shift[half] = epilogue.shift_of(min(row, at.rows - 1)) + at.column0 + 2 * (lane % 4);
    }
  }
  using Added = Finish::Residual;
  const bool add =
      kFinish.residual == Added::always || (kFinish.residual == Added::maybe && epilogue.residual != nullptr);
  const ToD<kFinish, kBuffers, kColumns, Residual> way{{staging, barrier, buffer}, map_d, at, residual, add, first};
  product::store_accumulator<T, kFinish, kTileColumns, kColumns, store_swizzled(kTileColumns), kStep, 1>(acc, terms,
                                                                                                         way);
}

}  // namespace noisefloor::gemm
