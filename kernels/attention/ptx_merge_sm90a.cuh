// How blocks that took a share of the keys each make one softmax of theirs: every block leaves its sums, not yet
// divided; then those of a row are added in the blocks' order, so that results are the same whatever the timing. Blocks
// of a cluster (ptx_sm90a) leave them in their own shared memory, and each finishes a share of the rows; those of
// ptx_sm90a_wide in the workspace, for a second launch. Device code only.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/attention/ptx_wide_sm90a_tile.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::attention {

// 8 columns of a row, to `out`, of `shares` shares, kMost at most. state_of(rank) is a share's shift and sum of
// weights, load(rank, low, high) gives its sums. `lse` is null where it is not wanted of this thread.
inline constexpr int kAnyNumber = std::numeric_limits<int>::max();
template <class T, int kMost, class StateOf, class Load>
__device__ __forceinline__ void merge_shares(int shares, const StateOf& state_of, const Load& load, T* out,
                                             float* lse) {
  constexpr int kUnrolled = kMost < 4 ? kMost : 4;
  float highest = kLowest, total = 0, sums[8] = {};
#pragma unroll kUnrolled
  for (int rank = 0; rank < kMost && rank < shares; ++rank) highest = fmaxf(highest, state_of(rank).x);
#pragma unroll kUnrolled
  for (int rank = 0; rank < kMost && rank < shares; ++rank) {
    const float2 state = state_of(rank);
    const float weight = ptx::exp2_approx(state.x - highest);
    total = fmaf(weight, state.y, total);
    float4 low, high;
    load(rank, low, high);
    const float eight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = fmaf(weight, eight[i], sums[i]);
  }
  const float inverse = 1.0f / total;
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] *= inverse;
  store_vector<T>(out, sums);
  if (lse != nullptr) *lse = highest * kLn2 + __logf(total);
}

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
    const std::uint32_t sums = partial + static_cast<std::uint32_t>(row * P::kRowBytes + piece * 32);
    const std::int64_t at = std::int64_t{batch} * args.heads + head, token = std::int64_t{batch} * args.seq_q + query;
    merge_shares<T, kMostSplits>(
        args.sharing.splits, [&](int rank) { return ptx::load_cluster_pair(ptx::map_to_rank(state, rank)); },
        [&](int rank, float4& low, float4& high) {
          low = ptx::load_cluster_16(ptx::map_to_rank(sums, rank));
          high = ptx::load_cluster_16(ptx::map_to_rank(sums + 16, rank));
        },
        static_cast<T*>(args.out) + (token * args.heads + head) * args.dim + piece * 8,
        args.lse != nullptr && piece == 0 ? args.lse + at * args.seq_q + query : nullptr);
  }
}

namespace wide {

// A consumer's 64 rows, from query `first` on, of its columns. `row`: that of query 0.
__device__ __forceinline__ void leave_sums(const float (&o)[kColumns / 2], const RowState& state, const Arguments& args,
                                           int consumer, int first, std::int64_t row, int split) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + 16 * warp + 8 * half + lane / 4;
    if (query >= args.seq_q) continue;
    const std::int64_t place = split * args.rows + row + query;
    if (consumer == 0 && lane % 4 == 0) args.states[place] = make_float2(state.shift[half], state.sum[half]);
    float* const to = args.sums + place * args.dim + consumer * kColumns + lane % 4 * 2;
    const int columns = args.dim - consumer * kColumns;  // a multiple of 8
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i)
      if (8 * i < columns)
        *reinterpret_cast<float2*>(to + 8 * i) = make_float2(o[4 * i + 2 * half], o[4 * i + 2 * half + 1]);
  }
}

// A thread for 8 columns of a row.
inline constexpr int kMergeThreads = 256;
template <class T>
__global__ void __launch_bounds__(kMergeThreads)
    attention_ptx_wide_merge_sm90a(const __grid_constant__ Arguments args) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int pieces = args.dim / 8;
  const std::int64_t item = std::int64_t{blockIdx.x} * kMergeThreads + threadIdx.x;
  const std::int64_t row = item / pieces;
  if (row >= args.rows) return;
  const int piece = static_cast<int>(item - row * pieces);
  const std::int64_t image_and_head = row / args.seq_q, query = row % args.seq_q;
  const std::int64_t token = image_and_head / args.heads * args.seq_q + query;
  merge_shares<T, kAnyNumber>(
      args.sharing.splits, [&](int split) { return args.states[split * args.rows + row]; },
      [&](int split, float4& low, float4& high) {
        const auto* const from = reinterpret_cast<const float4*>(args.sums + (split * args.rows + row) * args.dim);
        low = from[piece * 2], high = from[piece * 2 + 1];
      },
      static_cast<T*>(args.out) + (token * args.heads + image_and_head % args.heads) * args.dim + piece * 8,
      args.lse != nullptr && piece == 0 ? args.lse + row : nullptr);
}

}  // namespace wide
}  // namespace noisefloor::attention
