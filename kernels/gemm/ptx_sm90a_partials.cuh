// A split tile's partial sums in gemm's ptx_sm90a: sent to the blocks that finish them, summed and stored. Device code
// only.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/device/vector.cuh"
#include "kernels/gemm/ptx_sm90a_epilogue.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/shared.cuh"

namespace noisefloor::gemm {

// Floats between rows of partial sums: 8 more than a tile's, so that the 8-byte writes of half a warp (4 rows of 8
// floats) cover all 32 banks once.
template <int kBlockN>
inline constexpr int kPartialStride = kBlockN + 8;

// The bytes of a DSMEM buffer (product::DsmemBuffer): one share of block_m / splits rows from each block.
template <int kBlockM, int kBlockN>
inline constexpr int kDsmemBytes = kBlockM* kPartialStride<kBlockN> * 4;

// Sends this thread's sums, of the tile's columns or of some of them, to the `dsmem` of each row's block, where they
// begin. Its rows lie in 16 of a warp, of which the lower and the upper 8 go to one block each (a share has 8 rows at
// least).
template <int kBlockM, int kBlockN, int kConsumers, int kCount>
__device__ __forceinline__ void send_partial(const product::WarpRole<kConsumers>& role,
                                             const product::Barriers& barriers, const float (&acc)[kCount],
                                             std::uint32_t dsmem) {
  const int thread = static_cast<int>(threadIdx.x);
  const int log_rows = std::countr_zero(static_cast<unsigned>(kBlockM)) - product::log2_of(role.splits);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = thread / 32 * 16 + 8 * half + thread % 32 / 4, share = row >> log_rows;
    const int row_there = (role.split << log_rows) + row - (share << log_rows);
    const int at = row_there * kPartialStride<kBlockN> + thread % 4 * 2;
    const std::uint32_t here = dsmem + static_cast<std::uint32_t>(at * 4);
    if (share == role.split) {
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i)
        ptx::store_shared_pair(here + 32 * i, acc[4 * i + 2 * half], acc[4 * i + 2 * half + 1]);
    } else {
      const auto block = static_cast<std::uint32_t>(role.peer(share));
      const std::uint32_t there = ptx::map_to_rank(here, block), received = ptx::map_to_rank(barriers.received, block);
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i)
        ptx::store_async(there + 32 * i, make_float2(acc[4 * i + 2 * half], acc[4 * i + 2 * half + 1]), received);
    }
  }
}

__device__ __forceinline__ void scale_and_bias(float scale, const float2* bias, float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = fmaf(scale, v[2 * i], bias[i].x);
    v[2 * i + 1] = fmaf(scale, v[2 * i + 1], bias[i].y);
  }
}
// Reduces and stores this block's share of the tile, each row with its image's shift. `residual`: that of the share,
// its rows one after the other. The share's rows, block_m / splits of them, begin at `share` times as many.
template <class T, int kBlockM, int kBlockN>
__device__ __forceinline__ void reduce_and_store(const product::Partials& partials, int share, const float2* bias,
                                                 const T* residual, const Epilogue<T>& epilogue, T* d,
                                                 const TilePosition& at) {
  const int rows = kBlockM / partials.splits;
  const int chunks = kBlockN / 8 / (epilogue.gated ? 2 : 1);
  constexpr int kThreads = 2 * kBlockM;
  for (int item = static_cast<int>(threadIdx.x); item < rows * chunks; item += kThreads) {
    const int tile_column = item % chunks * 8;
    const std::int64_t row = at.row0 + share * rows + item / chunks;
    const int column = at.column0 + tile_column;
    if (row >= at.rows || column >= at.columns) continue;
    const int offset = item / chunks * kPartialStride<kBlockN> + tile_column;
    const auto sum = [&](int at, float(&sums)[8]) {
      partials.sum(offset + at, sums);
      scale_and_bias(epilogue.scale, bias + (at + tile_column) / 2, sums);
    };
    float v[8], gates[8];
    sum(0, v);
    if (epilogue.gated) sum(kBlockN / 2, gates);
    uint4 shift{}, added{};
    if (epilogue.image_shift) shift = load_16_bytes<CacheHint::read_only>(epilogue.shift_of(row) + column);
    if (epilogue.residual) added = *reinterpret_cast<const uint4*>(residual + item * 8);
    epilogue.finish(
        v, product::run_of<T>(shift), [&](int i) { return gates[i]; }, product::run_of<T>(added), [] {});
    store_vector<T>(d + (at.part * at.rows + row) * epilogue.part + at.part_column + tile_column, v);
  }
}

}  // namespace noisefloor::gemm
