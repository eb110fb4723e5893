// How blocks of a cluster that took a share of the keys each make one softmax of theirs: every block leaves its sums,
// not yet divided, in its own shared memory; then each reads all blocks' of its share of the rows, in the blocks'
// order, so that results are the same whatever the timing. Device code only.
#pragma once

#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/shared.cuh"

namespace noisefloor::attention {

// Rows of kDim floats 32 bytes further on than they are long, so that eight rows are in different banks; behind them
// the shift and the sum of each.
template <int kDim, int kRows>
struct Partial {
  static constexpr int kRowBytes = (kDim + 8) * 4;
  static constexpr int kStates = kRows * kRowBytes;
  static constexpr int kBytes = kStates + kRows * 8;
};

// A warpgroup's 64 rows, from `first` of the block's on.
template <int kDim, int kRows>
__device__ __forceinline__ void leave_partial(const float (&o)[kDim / 2], const RowState& state, std::uint32_t partial,
                                              int first) {
  using P = Partial<kDim, kRows>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + 16 * warp + 8 * half + lane / 4;
    float total = state.sum[half];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    if (lane % 4 == 0)
      ptx::store_shared_pair(partial + P::kStates + static_cast<std::uint32_t>(row * 8), state.shift[half], total);
    const std::uint32_t at = partial + static_cast<std::uint32_t>(row * P::kRowBytes + lane % 4 * 8);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i)
      ptx::store_shared_pair(at + i * 32, o[4 * i + 2 * half], o[4 * i + 2 * half + 1]);
  }
}

// This block's share of the rows from all blocks' sums; `kThreads` threads call it, each for 8 columns of a row at a
// time. `first` is the block's first query.
template <class T, int kDim, int kRows, int kThreads>
__device__ __forceinline__ void merge_partials(std::uint32_t partial, const Arguments& args, int first, int head,
                                               int batch) {
  using P = Partial<kDim, kRows>;
  constexpr int kMostSplits = 2;
  const int share = kRows / args.sharing.splits, pieces = args.dim / 8;
  const int begin = static_cast<int>(ptx::cluster_rank()) * share;
  for (int item = static_cast<int>(threadIdx.x); item < share * pieces; item += kThreads) {
    const int row = begin + item / pieces, piece = item % pieces, query = first + row;
    if (query >= args.seq_q) continue;
    const std::uint32_t state = partial + P::kStates + static_cast<std::uint32_t>(row * 8);
    float weights[kMostSplits], highest = kLowest, total = 0;
#pragma unroll
    for (int rank = 0; rank < kMostSplits; ++rank)
      if (rank < args.sharing.splits) {
        weights[rank] = ptx::load_cluster(ptx::map_to_rank(state, rank));
        highest = fmaxf(highest, weights[rank]);
      }
    float sums[8] = {};
#pragma unroll
    for (int rank = 0; rank < kMostSplits; ++rank)
      if (rank < args.sharing.splits) {
        const float weight = ptx::exp2_approx(weights[rank] - highest);
        total = fmaf(weight, ptx::load_cluster(ptx::map_to_rank(state + 4, rank)), total);
        const std::uint32_t at =
            ptx::map_to_rank(partial + static_cast<std::uint32_t>(row * P::kRowBytes + piece * 32), rank);
        const float4 low = ptx::load_cluster_16(at), high = ptx::load_cluster_16(at + 16);
        const float eight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i] = fmaf(weight, eight[i], sums[i]);
      }
    const float inverse = 1.0f / total;
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] *= inverse;
    const std::int64_t token = std::int64_t{batch} * args.seq_q + query;
    store_vector<T>(static_cast<T*>(args.out) + (token * args.heads + head) * args.dim + piece * 8, sums);
    if (args.lse != nullptr && piece == 0)
      args.lse[(std::int64_t{batch} * args.heads + head) * args.seq_q + query] = highest * kLn2 + __logf(total);
  }
}

}  // namespace noisefloor::attention
