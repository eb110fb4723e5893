// The epilogue of the convolutions' ptx_sm90a kernels. A consumer's 64 pixels leave in pieces of up to 64 channels,
// finished in registers (or from the partial sums of a split tile: ptx_sm90a_partials.cuh) and put into shared memory
// as TMA swizzles them. TMA stores them, but channels that are no multiple of 8, and im2col's rows of a phase, whose
// pixels do not follow each other: those the warps store, 16 bytes a lane. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_sm90a_layout.cuh"
#include "kernels/product/epilogue.cuh"
#include "kernels/product/sm90a_epilogue.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {

// A warpgroup's share of a block's tile, and its part of shared memory. `Place` says which pixels its 64 rows are.
template <class T, class Place, class Op = Outputs>
struct EpilogueStore {
  const Output<T, Op>& args;
  Place place;
  int column0;            // of the tile
  int barrier;            // a hardware barrier for the warpgroup alone
  std::uint8_t* piece;    // [64][columns] of T, or buffers of them
  float *mul, *add;       // per channel of the tile
  const T* row_shift[2];  // of this thread's rows, where the warpgroup's pixels belong to several images; else null

  __device__ __forceinline__ void sync() const { ptx::named_barrier_sync(static_cast<std::uint32_t>(barrier), 128); }
  __device__ __forceinline__ int pixel(int row) const { return place.pixel(args.c, row); }
  // The shifts of this thread's rows, each of its image; of one that does not exist, any.
  __device__ __forceinline__ void look_up_shifts() {
    const Convolution& c = args.c;
    const int row = place.row0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row_shift[half] =
          args.epilogue.image_shift + std::int64_t{min((row + 8 * half) / (c.y.out * c.x.out), c.images - 1)} * c.cout;
  }
};

// Multiplier and addend of two channels of the tile per thread, asked for before the products begin, so that nobody
// waits for them; written when the accumulator is done, and all have read those of the tile before.
template <int kBlockN>
struct ChannelPair {
  float mul[2], add[2];

  template <class T, class Op>
  __device__ __forceinline__ ChannelPair(const Output<T, Op>& args, int column0, const T* image_shift) {
    const int at = static_cast<int>(threadIdx.x) % 128 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      mul[i] = 1, add[i] = 0;
      if (at >= kBlockN || column0 + at + i >= args.epilogue.columns) continue;
      args.epilogue.channel(column0 + at + i, mul[i], add[i]);
      if (image_shift) add[i] += to_float(image_shift[column0 + at + i]);
    }
  }
  __device__ __forceinline__ void write(float* to_mul, float* to_add) const {
    const int at = static_cast<int>(threadIdx.x) % 128 * 2;
    if (at >= kBlockN) return;
    *reinterpret_cast<float2*>(to_mul + at) = make_float2(mul[0], mul[1]);
    *reinterpret_cast<float2*>(to_add + at) = make_float2(add[0], add[1]);
  }
};

// 8 neighbouring channels of a pixel from T*, or zeros.
template <class T>
__device__ __forceinline__ uint4 load_8(const T* from, int column, int cout) {
  if (cout % 8 == 0) return load_16_bytes<CacheHint::read_only>(from + column);
  Run<T, 8> run{};
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (column + i < cout) run.v[i] = from[column + i];
  return *reinterpret_cast<const uint4*>(&run);
}

using product::Finish;

// What belongs to a lane's pairs in blocks of 8 channels of the tile (product::finish_blocks).
template <class T, class Place, class Op>
struct ChannelTerms {
  const EpilogueStore<T, Place, Op>& of;
  int first = static_cast<int>(threadIdx.x) % 4 * 2;

  __device__ __forceinline__ float2 factor(int column) const {
    return *reinterpret_cast<const float2*>(of.mul + first + column);
  }
  __device__ __forceinline__ float2 addend(int column) const {
    return *reinterpret_cast<const float2*>(of.add + first + column);
  }
  __device__ __forceinline__ void add_shift(int half, int column, float& low, float& high) const {
    if (!of.row_shift[half]) return;
    const int at = of.column0 + first + column;
    if (at < of.args.epilogue.columns) low += to_float(of.row_shift[half][at]);
    if (at + 1 < of.args.epilogue.columns) high += to_float(of.row_shift[half][at + 1]);
  }
  template <int kCount>
  __device__ __forceinline__ void activate(float (&v)[kCount]) const {
    of.args.epilogue.activate(v);
  }
  __device__ __forceinline__ float gain() const { return of.args.epilogue.gain; }
};

// Of a halo's patch: ptx_halo_statistics.cuh.
template <int kColumns, class T, class Place>
__device__ __forceinline__ void patch_statistics(const EpilogueStore<T, Place>& from, const std::uint8_t* piece,
                                                 int column, int columns);

// Stores a filled piece, [64][kColumns] as TMA swizzles it: channels [column, column + columns) of its pixels. Each
// warp takes the 16 rows that it fills from accumulators.
template <int kColumns, class T, class Place, class Op>
__device__ __forceinline__ void drain_piece(const EpilogueStore<T, Place, Op>& from, const std::uint8_t* piece,
                                            int column, int columns) {
  constexpr int kRow = kColumns * 2, kChunks = kRow / 16, kRows = 32 / kChunks;  // bytes; rows of a warp at once
  const Epilogue<T, Op>& epilogue = from.args.epilogue;
  const int lane = static_cast<int>(threadIdx.x) % 32, chunk = lane % kChunks;
  const int first = column + chunk * 8;
  const int first_row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / kChunks;
  if (chunk * 8 >= columns || first >= epilogue.columns) return;
#pragma unroll
  for (int i = 0; i < 16; i += kRows) {
    const int row = first_row + i;
    if (!from.place.has(row)) continue;
    const int swizzle = row / (128 / kRow) % kChunks;
    const uint4 bits = *reinterpret_cast<const uint4*>(piece + row * kRow + (chunk ^ swizzle) * 16);
    T* to = epilogue.out + std::int64_t{from.pixel(row)} * epilogue.columns + first;
    if (epilogue.columns % 8 == 0) {
      store_16_bytes(to, bits);
    } else {
      const auto run = reinterpret_cast<const Run<T, 8>&>(bits);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (first + j < epilogue.columns) to[j] = run.v[j];
    }
  }
}

// A tile's way to its pixels, in pieces of kColumns channels. `map` is that of a store by TMA; `by_tma` says whether
// it can.
template <int kBuffers, int kColumns, bool kStatistics, class T, class Place, class Op, class Residual>
struct ToPixels {
  static constexpr int kBytes = 64 * kColumns * 2;
  product::StoreBuffers<kBuffers, kBytes> buffers;
  const EpilogueStore<T, Place, Op>& to;
  const CUtensorMap* map;
  bool by_tma;
  const Residual& residual;

  __device__ __forceinline__ std::uint32_t begin(int) const {
    if (by_tma) buffers.await(false);
    return buffers.at();
  }
  template <int kBlocks, class Row>
  __device__ __forceinline__ void load(const Row& row, int piece, int block, std::uint32_t (&words)[2][4],
                                       std::uint32_t (&)[2][4]) const {
    residual.template load<kBlocks>(row, piece, block, words);
  }
  __device__ __forceinline__ void end(int piece) const {
    const int column = to.column0 + piece * kColumns;
    const std::uint8_t* const here = to.piece + buffers.ring.stage * kBytes;
    if (!by_tma) {  // each warp at its own pace
      __syncwarp();
      drain_piece<kColumns>(to, here, column, kColumns);
      __syncwarp();
      return;
    }
    buffers.hand_over(false, [&] {
      store_piece(to.place, map, buffers.at(), column);
      ptx::tma_store_commit();
    });
    if constexpr (kStatistics)
      if (to.args.c.stats) patch_statistics<kColumns>(to, here, column, kColumns);
    buffers.ring.advance(kBuffers);
  }
};

// Stores a consumer's accumulator: `residual` knows how to load that of its blocks.
template <Finish kFinish, int kBlockN, int kBuffers, int kColumns, int kStep, int kHalves, bool kStatistics, class T,
          class Place, class Op, class Residual>
__device__ __forceinline__ void store_accumulator(const EpilogueStore<T, Place, Op>& to, const CUtensorMap* map,
                                                  bool by_tma, float (&acc)[kBlockN / 2], const Residual& residual,
                                                  ptx::Ring& buffer) {
  if (kBuffers > 1 || !by_tma) to.sync();  // what belongs to the channels is there
  using Way = ToPixels<kBuffers, kColumns, kStatistics, T, Place, Op, Residual>;
  const Way way{
      {ptx::shared_address(to.piece), static_cast<std::uint32_t>(to.barrier), buffer}, to, map, by_tma, residual};
  product::store_accumulator<T, kFinish, kBlockN, kColumns, true, kStep, kHalves>(acc, ChannelTerms<T, Place, Op>{to},
                                                                                  way);
}

}  // namespace noisefloor::convolution
