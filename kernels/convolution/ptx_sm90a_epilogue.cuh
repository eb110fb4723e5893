// The epilogue of ptx_sm90a. A warpgroup's 64 pixels leave in pieces of up to 64 channels through shared memory: the
// piece is filled with finished, rounded outputs, from accumulator registers or from the partial sums of a split tile
// (ptx_sm90a_partials.cuh); then drained to their pixels in 16-byte stores.
// Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_sm90a_layout.cuh"
#include "kernels/product/epilogue.cuh"
#include "kernels/product/sm90a_epilogue.cuh"
#include "kernels/ptx/mbarrier.cuh"

namespace noisefloor::convolution {

// A warpgroup's share of a block's tile, and its part of shared memory. `Place` says which pixels its 64 rows are.
template <class T, class Place>
struct EpilogueStore {
  const Output<T>& args;
  Place place;
  int column0;            // of the tile
  int barrier;            // a hardware barrier for the warpgroup alone
  std::uint8_t* piece;    // [64][64] of T; 16-byte chunk c of row r lies at chunk c ^ (r % 8)
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

  template <class T>
  __device__ __forceinline__ ChannelPair(const Output<T>& args, int column0, const T* image_shift) {
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

// 8 neighbouring channels of a pixel from T* or zeros; `whole`: 16 bytes at once.
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
template <class T, class Place>
struct ChannelTerms {
  const EpilogueStore<T, Place>& of;
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

// Hands a filled piece on: channels [column, column + columns) of the output, and, where a patch's statistics may leave
// with it (kStatistics), those. Each warp takes the 16 rows that it fills from accumulators, so that they need no
// barrier.
template <class T, bool kStatistics, class Place>
__device__ __forceinline__ void drain_piece(const EpilogueStore<T, Place>& from, int column, int columns) {
  const Epilogue<T>& epilogue = from.args.epilogue;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int chunk = thread % 8;
  const int first = column + chunk * 8;
  const int first_row = thread / 32 * 16 + thread % 32 / 8;
  if (chunk * 8 < columns && first < epilogue.columns) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + 4 * i;
      if (!from.place.has(row)) continue;
      const uint4 bits = *reinterpret_cast<const uint4*>(from.piece + row * 128 + (chunk ^ (row % 8)) * 16);
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
  if constexpr (kStatistics)
    if (from.args.c.stats) patch_statistics<kPieceColumns>(from, from.piece, column, columns);
}

// A tile's way to its pixels, of which each warp fills 16 rows of a piece and drains them, at its own pace. Residuals
// are loaded 16 bytes a lane and exchanged within quads of lanes.
template <class T, class Place>
struct ToPixels {
  const EpilogueStore<T, Place>& to;
  int columns;   // of the tile
  int pixel[2];  // of this thread's rows

  __device__ __forceinline__ std::uint32_t begin(int) const { return ptx::shared_address(to.piece); }
  template <int kBlocks, class Row>
  __device__ __forceinline__ void load(const Row&, int piece, int block, std::uint32_t (&words)[2][4],
                                       std::uint32_t (&)[2][4]) const {
    const Epilogue<T>& epilogue = to.args.epilogue;
    if (!epilogue.residual) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int column = to.column0 + piece * kPieceColumns + 8 * (block + lane % 4);
    uint4 loaded[2] = {};  // both before either is waited for
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4 + 8 * half;
      if (column < epilogue.columns && to.place.has(row))
        loaded[half] =
            load_8(epilogue.residual + std::int64_t{pixel[half]} * epilogue.columns, column, epilogue.columns);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      words[half][0] = loaded[half].x, words[half][1] = loaded[half].y;
      words[half][2] = loaded[half].z, words[half][3] = loaded[half].w;
      product::transpose_quad(words[half], lane);
    }
  }
  __device__ __forceinline__ void end(int piece) const {
    const int done = piece * kPieceColumns;
    __syncwarp();
    drain_piece<T, false>(to, to.column0 + done, min(columns - done, kPieceColumns));
    __syncwarp();
  }
};

template <class T, int kBlockN, class Place>
__device__ __forceinline__ void store_accumulator(const EpilogueStore<T, Place>& to, float (&acc)[kBlockN / 2]) {
  const ChannelTerms<T, Place> terms{to};
  const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const ToPixels<T, Place> way{to, kBlockN, {to.pixel(row), to.pixel(row + 8)}};
  constexpr Finish kFinish{.act = true, .shift = true, .gain = true};
  product::store_accumulator<T, kFinish, kBlockN, kPieceColumns, true, 4, 1>(acc, terms, way);
}

}  // namespace noisefloor::convolution
