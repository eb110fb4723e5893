// A split tile's partial sums in the convolutions' ptx_sm90a: sent to the blocks that finish them, summed and stored.
// Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_sm90a_epilogue.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/shared.cuh"

namespace noisefloor::convolution {

// Partial sums lie in shared memory as blocks of 8 channels, [block][block_m rows][8] floats, so that what a warp sends
// of a block, 8 rows at a time, is 256 contiguous bytes. A DSMEM buffer (product::DsmemBuffer) has a share's blocks
// from each split. Where a thread's sums of a block of channels go: worked out by one lane for each, ahead of the
// products.
struct Addressees {
  std::uint32_t dsmem = 0, received = 0;  // of block `lane` of channels; `received` is 0 where it stays here

  template <int kBlockN, int kBlockM, int kConsumers>
  __device__ __forceinline__ void find(const WarpRole<kConsumers>& role, const Barriers& barriers,
                                       const Divider& splits, std::uint32_t dsmem_at) {
    static_assert(kBlockN / 8 <= 32);
    int share = 0;
    for (int s = 1; s < splits; ++s) share += share_begin(kBlockN, splits, s) <= role.lane ? 1 : 0;
    const int first = share_begin(kBlockN, splits, share), count = share_begin(kBlockN, splits, share + 1) - first;
    dsmem = dsmem_at + static_cast<std::uint32_t>((role.split * count + role.lane - first) * kBlockM * 32);
    if (share == role.split) return;
    const auto block = static_cast<std::uint32_t>(role.peer(share));
    dsmem = ptx::map_to_rank(dsmem, block);
    received = ptx::map_to_rank(barriers.received, block);
  }
};

template <int kBlockN>
__device__ __forceinline__ void send_partial(const float (&acc)[kBlockN / 2], const Addressees& to) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto mine = static_cast<std::uint32_t>((thread / 32 * 16 + thread % 32 / 4) * 32 + thread % 4 * 8);
#pragma unroll
  for (int i = 0; i < kBlockN / 8; ++i) {
    const std::uint32_t at = __shfl_sync(0xffffffffu, to.dsmem, i) + mine;
    const std::uint32_t received = __shfl_sync(0xffffffffu, to.received, i);
    if (received == 0) {
      ptx::store_shared_pair(at, acc[4 * i], acc[4 * i + 1]);
      ptx::store_shared_pair(at + 8 * 32, acc[4 * i + 2], acc[4 * i + 3]);
    } else {
      ptx::store_async(at, make_float2(acc[4 * i], acc[4 * i + 1]), received);
      ptx::store_async(at + 8 * 32, make_float2(acc[4 * i + 2], acc[4 * i + 3]), received);
    }
  }
}

// Finishes this block's share of a split tile, when await() says that all of it has arrived; `consumer` is the
// warpgroup's place in the tile. The residual is asked for ahead, first before that.
template <class T, int kBlockM, bool kStatistics, class Place, class Op, class Await>
__device__ __forceinline__ void store_partials(const EpilogueStore<T, Place, Op>& to, const float* dsmem,
                                               const Divider& splits, int split, int block_n, int consumer,
                                               const Await& await) {
  const Epilogue<T, Op>& epilogue = to.args.epilogue;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int share = share_begin(block_n, splits, split), count = share_blocks(block_n, splits, split);
  const product::Partials partials{dsmem, splits, count * kBlockM * 8};
  constexpr int kPieceBlocks = kSplitColumns / 8;
  // An item is 8 channels of a row. Whether a thread stores it where it belongs; else it goes through the piece.
  const bool direct = epilogue.columns % 8 == 0 && !(kStatistics && to.args.c.stats);
  for (int done = 0; done < count; done += kPieceBlocks) {
    const int blocks = min(count - done, kPieceBlocks);
    // Of fewer than 64 * 8 items: (item + 0.5) / blocks is 1/16 and more from a whole number, 2^14 ulps.
    const float per_row = __fdividef(1.0f, static_cast<float>(blocks));
    const auto row_of = [&](int item) { return static_cast<int>((static_cast<float>(item) + 0.5f) * per_row); };
    // The residual of an item, none of an item that is not.
    const auto residual_of = [&](int item) {
      const int row = row_of(item);
      const int column = to.column0 + (share + done + item - row * blocks) * 8;
      if (!epilogue.residual || item >= 64 * blocks || !to.place.has(row) || column >= epilogue.columns) return uint4{};
      const std::int64_t pixel = to.place.residual_pixel(to.args.c, row);
      return load_8(epilogue.residual + pixel * epilogue.columns, column, epilogue.columns);
    };
    uint4 ahead[2] = {residual_of(thread), residual_of(thread + 128)};
    if (done == 0) await();
    to.sync();
#pragma unroll 1
    for (int item = thread; item < 64 * blocks; item += 128) {
      const uint4 residual = ahead[0];
      ahead[0] = ahead[1];
      ahead[1] = residual_of(item + 256);
      const int row = row_of(item), block = item - row * blocks;
      const int tile_column = (share + done + block) * 8;
      const int column = to.column0 + tile_column;
      if (!to.place.has(row) || column >= epilogue.columns) continue;
      float v[8];
      partials.sum(((done + block) * kBlockM + consumer * 64 + row) * 8, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], to.mul[tile_column + i], to.add[tile_column + i]);
      uint4 shift{};
      if (to.row_shift[0]) {  // per row: find the row's image
        const int image = to.place.image(to.args.c, row);
        shift = load_8(epilogue.image_shift + std::int64_t{image} * epilogue.columns, column, epilogue.columns);
      }
      epilogue.finish(
          v, product::run_of<T>(shift), [](int) { return 0.0f; }, product::run_of<T>(residual), [] {});
      if (direct)
        store_vector<T>(epilogue.out + std::int64_t{to.pixel(row)} * epilogue.columns + column, v);
      else
        *reinterpret_cast<uint4*>(to.piece + row * 128 + (block ^ (row % 8)) * 16) = pack_vector<T>(v);
    }
    if (direct) continue;
    to.sync();
    const int column = to.column0 + (share + done) * 8;
    drain_piece<kSplitColumns>(to, to.piece, column, blocks * 8);
    if constexpr (kStatistics)
      if (to.args.c.stats) patch_statistics<kSplitColumns>(to, to.piece, column, blocks * 8);
  }
}

}  // namespace noisefloor::convolution
