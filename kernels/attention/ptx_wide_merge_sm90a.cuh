// How blocks that took a share of the keys each make one softmax of theirs in ptx_sm90a_wide: every block leaves its
// sums, not yet divided, in the workspace; a second launch adds them in the splits' order, so that results are the same
// whatever the timing. Device code only.
#pragma once

#include <cstdint>

#include "kernels/attention/ptx_wide_sm90a_tile.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::attention::wide {

// What the launches are told besides tensor maps. A row is a query of a head of an image, counted in that order.
struct Arguments {
  int heads, seq_q, seq_kv, dim, splits;
  float scale_log2;  // of the logits, times log2(e)
  float* lse;        // fp32 [rows]; null: not wanted
  std::int64_t rows;
  float* sums;     // fp32 [splits, rows, dim]
  float2* states;  // [splits, rows]: the shift, and the sum of weights
  void* out;       // T [batch, seq_q, heads, dim]
};

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
  float highest = kLowest, total = 0, sums[8] = {};
  for (int split = 0; split < args.splits; ++split) highest = fmaxf(highest, args.states[split * args.rows + row].x);
  for (int split = 0; split < args.splits; ++split) {
    const std::int64_t place = split * args.rows + row;
    const float2 state = args.states[place];
    const float weight = ptx::exp2_approx(state.x - highest);
    total = fmaf(weight, state.y, total);
    const auto* const from = reinterpret_cast<const float4*>(args.sums + place * args.dim + piece * 8);
    const float4 low = from[0], high = from[1];
    const float eight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = fmaf(weight, eight[i], sums[i]);
  }
  const float inverse = 1.0f / total;
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] *= inverse;
  const std::int64_t image_and_head = row / args.seq_q, query = row % args.seq_q;
  const std::int64_t token = image_and_head / args.heads * args.seq_q + query;
  store_vector<T>(static_cast<T*>(args.out) + (token * args.heads + image_and_head % args.heads) * args.dim + piece * 8,
                  sums);
  if (args.lse != nullptr && piece == 0) args.lse[row] = highest * kLn2 + __logf(total);
}

}  // namespace noisefloor::attention::wide
