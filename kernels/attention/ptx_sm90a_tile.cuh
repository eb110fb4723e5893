// What both ptx_sm90a kernels of attention do with a warpgroup's 64 queries: the two products, the softmax between
// them, and the store. Device code only.
//
// Heads lie in shared memory as boxes of 64 elements (128 bytes a row, TMA's 128-byte swizzle), box after box; what a
// head does not fill arrives as zeros. Thread t of the warpgroup holds, of every accumulator, rows r and r + 8 with
// r = 16 * (t / 32) + t % 32 / 4, and columns 8 * i + 2 * (t % 4) and the next.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/attention/strided.h"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/special_functions.cuh"
#include "kernels/ptx/stmatrix.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::attention {

inline constexpr int kBoxColumns = 64;
inline constexpr int kBoxRowBytes = 128;
inline constexpr int kSwizzleAtom = 1024;  // 8 rows: the alignment of a swizzled box
constexpr int boxes_of(int dim) {
  return (dim + kBoxColumns - 1) / kBoxColumns;
}

// Of a schedule, see schedule.h.
struct Sharing {
  bool turns = false;
  int splits = 1;  // blocks of a cluster that share a tile's keys
  int whole = 0;   // first clusters that do not
};

// What a kernel is told besides its tensor maps.
struct Arguments {
  int heads, seq_q, seq_kv;
  float scale_log2;  // of the logits, times log2(e)
  float* lse;        // null: not wanted
  void* out;         // for what is not stored by TMA
  int dim;           // of a head
  Sharing sharing;
  // ptx_sm90a_wide, of shares of the keys. A row is a query of a head of an image, counted in that order.
  std::int64_t rows = 0;
  float* sums = nullptr;     // fp32 [splits, rows, dim]
  float2* states = nullptr;  // [splits, rows]: the shift, and the sum of weights
};

// s[64, kKeys] = Q K^T: issued, not waited for. `queries` is the address of this warpgroup's rows in box 0, whose boxes
// are `query_box` bytes apart.
template <class T, int kDim, int kKeys>
__device__ __forceinline__ void issue_logits(float (&s)[kKeys / 2], std::uint32_t queries, std::uint32_t query_box,
                                             std::uint32_t keys) {
  constexpr int kSteps = (kDim + 15) / 16;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const std::uint32_t box = step / 4, within = step % 4;  // 4 k-steps of 16 elements a box
    const std::uint64_t a = ptx::wgmma_descriptor_128b(queries + box * query_box) + 2 * within;
    const std::uint64_t b = ptx::wgmma_descriptor_128b(keys + box * (kKeys * kBoxRowBytes)) + 2 * within;
    ptx::Wgmma<T, kKeys>::run(s, a, b, step > 0);
  }
}

// o[64, kDim] (+)= P V: issued, not waited for.
template <class T, int kDim, int kKeys>
__device__ __forceinline__ void issue_values(float (&o)[kDim / 2], const std::uint32_t (&p)[kKeys / 16][4],
                                             std::uint32_t values, bool add) {
  const std::uint64_t b = ptx::wgmma_descriptor_n_major_128b(values, kKeys * kBoxRowBytes);
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step)
    ptx::Wgmma<T, kDim, true>::run(o, p[step], b + step * (16 * kBoxRowBytes / 16), add || step > 0);
}

template <int kCount>
__device__ __forceinline__ void pin(float (&accumulators)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) ptx::wgmma_pin(accumulators[i]);
}

// A thread's two rows of the softmax.
struct RowState {
  float shift[2];         // the largest logit so far, or about it, times scale_log2
  float sum[2] = {0, 0};  // of this thread's columns
};

// Logits past the last of `keys` keys (zeros) weigh nothing, even where all others are -inf.
template <int kCount>
__device__ __forceinline__ void mask_keys(float (&s)[kCount], int keys) {
  if (keys >= 2 * kCount) return;
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i / 4 * 8 + first + i % 2 >= keys) s[i] = -INFINITY;
}

// The largest logit of a thread's row, of all four lanes that have it.
template <int kCount>
__device__ __forceinline__ float row_maximum(const float (&s)[kCount], int row) {
  float highest = kLowest;
#pragma unroll
  for (int i = 2 * row; i < kCount; i += 4) highest = fmaxf(highest, fmaxf(s[i], s[i + 1]));
  highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
  return fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
}

// Takes the shift of a thread's row from its largest logit, scaled; what sums under the former one are to be multiplied
// with. Where it rises by 8 at most, the former one stays and the factor is exactly 1: weights may exceed 1.
template <bool kFirst>
__device__ __forceinline__ float take_shift(float next, int row, RowState& state) {
  constexpr float kSlack = 8;
  float rescale = 0;
  if (!kFirst) {
    const float rise = next - state.shift[row];
    if (rise <= kSlack) next = state.shift[row];
    rescale = rise <= kSlack ? 1.0f : ptx::exp2_approx(-rise);
  }
  state.shift[row] = next;
  return rescale;
}
template <bool kFirst, int kCount>
__device__ __forceinline__ float take_maximum(const float (&s)[kCount], int row, float scale_log2, RowState& state) {
  return take_shift<kFirst>(row_maximum(s, row) * scale_log2, row, state);
}

// Turns a row's logits into weights and adds them up.
template <bool kFirst, int kCount>
__device__ __forceinline__ void take_weights(float (&s)[kCount], int row, float scale_log2, float rescale,
                                             RowState& state) {
  float sums[2] = {0, 0};
#pragma unroll
  for (int i = 2 * row; i < kCount; i += 4)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      s[i + j] = ptx::exp2_approx(fmaf(s[i + j], scale_log2, -state.shift[row]));
      sums[j] += s[i + j];
    }
  const float fresh = sums[0] + sums[1];
  state.sum[row] = kFirst ? fresh : fmaf(state.sum[row], rescale, fresh);
}

// The first softmax of rows, of `keys` keys.
template <int kCount>
__device__ __forceinline__ void first_softmax(float (&s)[kCount], int keys, float scale_log2, RowState& state) {
  mask_keys(s, keys);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    take_maximum<true>(s, row, scale_log2, state);
    take_weights<true>(s, row, scale_log2, 0, state);
  }
}

// The weights as A operands of the second product: an accumulator already has their shape.
template <class T, int kCount>
__device__ __forceinline__ void pack_weights(const float (&s)[kCount], int row, std::uint32_t (&p)[kCount / 8][4]) {
#pragma unroll
  for (int step = 0; step < kCount / 8; ++step)
#pragma unroll
    for (int i = row; i < 4; i += 2) p[step][i] = pack_pair<T>(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
}
template <class T, int kCount>
__device__ __forceinline__ void pack_weights(const float (&s)[kCount], std::uint32_t (&p)[kCount / 8][4]) {
  pack_weights<T>(s, 0, p);
  pack_weights<T>(s, 1, p);
}

template <int kCount>
__device__ __forceinline__ void scale_rows(float (&o)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= factor[i / 2 % 2];
}

// Stores a warpgroup's 64 rows of kDim columns, of which the tensor's `column` is the first: through 64 rows of the
// queries, of which every product must be done, then by TMA, which leaves out what lies outside the tensor. All 128
// threads call it; `barrier` is a hardware barrier of theirs. The copy has read shared memory when it returns.
template <class T, int kDim>
__device__ __forceinline__ void store_rows(const float (&o)[kDim / 2], const CUtensorMap* map, std::uint32_t queries,
                                           std::uint32_t query_box, int column, int first, int head, int batch,
                                           std::uint32_t barrier) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  // Lane l addresses row l % 16 of the warp's 16, and of a pair of 16-byte chunks the first or the second half of
  // lanes.
  const int row = 16 * warp + lane % 16;
#pragma unroll
  for (int chunk = 0; chunk < kDim / 8; chunk += 2) {
    const int mine = chunk + lane / 16;
    const std::uint32_t at = queries + static_cast<std::uint32_t>(mine / 8) * query_box +
                             static_cast<std::uint32_t>(row * kBoxRowBytes + ((mine % 8) ^ (row % 8)) * 16);
    const float* v = o + 4 * chunk;
    if (chunk + 1 < kDim / 8)
      ptx::stmatrix_x4(at, pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]),
                       pack_pair<T>(v[6], v[7]));
    else
      ptx::stmatrix_x2(at, pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]));
  }
  ptx::fence_proxy_async_shared();
  ptx::named_barrier_sync(barrier, 128);
  if (threadIdx.x % 128 / 32 == 0 && ptx::elect_one()) {
#pragma unroll
    for (int box = 0; box < boxes_of(kDim); ++box)
      ptx::tma_store_4d(map, queries + box * query_box, column + box * kBoxColumns, head, first, batch);
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  }
}

// Divides by the rows' sums, writes lse, and stores the warpgroup's 64 rows by store_rows, through its own rows of the
// queries.
template <class T, int kDim>
__device__ __forceinline__ void finish(float (&o)[kDim / 2], const RowState& state, const Arguments& args,
                                       const CUtensorMap* map, std::uint32_t queries, std::uint32_t query_box,
                                       int first, int head, int batch, std::uint32_t barrier) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  float inverse[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float total = state.sum[row];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    inverse[row] = 1.0f / total;
    const int query = first + 16 * warp + 8 * row + lane / 4;
    if (args.lse != nullptr && lane % 4 == 0 && query < args.seq_q)
      args.lse[(std::int64_t{batch} * args.heads + head) * args.seq_q + query] =
          state.shift[row] * kLn2 + __logf(total);
  }
  scale_rows(o, inverse);
  store_rows<T, kDim>(o, map, queries, query_box, 0, first, head, batch, barrier);
}

}  // namespace noisefloor::attention
