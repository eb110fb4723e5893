// attention on tensor cores from sm_80: the structure of FlashAttention-2 on mma.sync m16n8k16. A block takes 64 or 128
// queries of one head past all keys, 64 to 16 at a time. Its four warps split the queries, so that a row of the softmax
// stays within four lanes and weights go from the first product's accumulators to the second's A operand in registers.
// The next keys are copied (cp.async) during softmax and second product, the next values during the first product.
//
// Better than tiled: tensor cores for both products, 16-byte asynchronous copies, weights never in shared memory.
//
// Requires: bf16 or fp16, head size a multiple of 8, a layout with contiguous heads.
// Bound: tensor pipe at 4096 keys of 64, where mma.sync reaches half of wgmma's rate on sm_90; expected limiter: the
// exponentials, which nothing overlaps within a warp.
// Numerics: fp32 sums in the tensor core, exponentials by ex2.approx, weights rounded to 16 bits for the second product
// (their sum is of the unrounded ones).
// Source: Dao, "FlashAttention-2" (arXiv:2307.08691); PTX ISA (mma, ldmatrix, cp.async).
#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/mma_sm80.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/cp_async.cuh"

namespace noisefloor::attention {
namespace {

constexpr int kThreads = 128;

// Of a head whose sums do not fit into registers, a block takes one of `kParts` parts of the output's columns, and all
// logits again.
template <int kHeadDim>
struct Tile {
  static constexpr int kDim = kHeadDim;
  static constexpr int kParts = kDim > 256 ? 2 : 1, kOut = kDim / kParts;
  static constexpr int kSixteens = kDim <= 64 ? 2 : 1;  // groups of 16 queries per warp
  static constexpr int kRows = 64 * kSixteens;
  static constexpr int kKeys = kDim > 256 ? 16 : kDim > 160 ? 32 : 64;
  static constexpr int kStride = kDim + 8;          // elements
  static constexpr int kOutStride = kOut + 8;       // of values
  static constexpr bool kHoldQueries = kDim <= 64;  // in 32 registers; larger heads read theirs again
  static_assert(kStride / 8 % 2 == 1 && kOutStride / 8 % 2 == 1,
                "rows an odd number of 16-byte chunks apart: ldmatrix meets no bank conflict");
  static constexpr int kBytes = ((kRows + kKeys) * kStride + kKeys * kOutStride) * 2;
  static_assert(kBytes <= 99 * 1024);  // sm_86's; 28 KiB at head size 48, 36 at 64, 51 at 128, 66 at 256, 90 at 512
};

// Rows [first, first + kRows) of one head into shared memory; zeros past the last row and from `dim` to kDim.
template <int kDim, int kRows, class T>
__device__ __forceinline__ void copy_rows(std::uint32_t to, const T* from, std::int64_t row_stride, int first, int rows,
                                          int dim) {
  constexpr int kChunks = kDim / 8, kStride = kDim + 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, d = i % kChunks * 8;
    const bool valid = first + row < rows && d < dim;
    ptx::cp_async_16(to + static_cast<std::uint32_t>((row * kStride + d) * 2),
                     from + (valid ? (first + row) * row_stride + d : 0), valid);
  }
}

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads)
    attention_sm80(const Shape shape, const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                   T* __restrict__ out, float* __restrict__ lse) {
  constexpr int kSixteens = Tile::kSixteens, kKeys = Tile::kKeys, kSteps = Tile::kDim / 16;
  constexpr int kLogitTiles = kKeys / 8, kOutTiles = Tile::kOut / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  const std::uint32_t queries = ptx::shared_address(shared);
  const std::uint32_t keys = queries + Tile::kRows * Tile::kStride * 2;
  const std::uint32_t values = keys + kKeys * Tile::kStride * 2;

  const auto seq_q = static_cast<int>(shape.seq_q), seq_kv = static_cast<int>(shape.seq_kv);
  const auto heads = static_cast<unsigned>(shape.heads);
  const auto blocks = static_cast<unsigned>((seq_q + Tile::kRows - 1) / Tile::kRows);
  const unsigned block = blockIdx.x / Tile::kParts;
  const int first = static_cast<int>(block % blocks) * Tile::kRows;
  const unsigned head = block / blocks % heads, batch = block / blocks / heads;
  const int column = static_cast<int>(blockIdx.x % Tile::kParts) * Tile::kOut;  // of the output, its first here
  const int dim = static_cast<int>(shape.dim), columns = dim - column;
  const T* const key_base = k + shape.k.at(batch, 0, 0, head);
  const T* const value_base = v + shape.v.at(batch, 0, 0, head) + column;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kSixteens;
  const float scale = shape.scale * kLog2E;  // exponentials are powers of 2

  copy_rows<Tile::kDim, Tile::kRows>(queries, q + shape.q.at(batch, 0, 0, head), shape.q.seq, first, seq_q, dim);
  copy_rows<Tile::kDim, kKeys>(keys, key_base, shape.k.seq, 0, seq_kv, dim);
  ptx::cp_async_commit();
  copy_rows<Tile::kOut, kKeys>(values, value_base, shape.v.seq, 0, seq_kv, columns);
  ptx::cp_async_commit();

  // ldmatrix addresses of this lane: rows of A (queries) and of V go with lane % 16, those of K (two tiles of 8 keys)
  // with lane % 8 and lane / 16; the other bit selects a chunk of 8 elements.
  const auto row_address = [&](std::uint32_t base, int row, int element) {
    return base + static_cast<std::uint32_t>((row * Tile::kStride + element) * 2);
  };
  const std::uint32_t query_at = row_address(queries, warp_row + lane % 16, lane / 16 * 8);
  const std::uint32_t key_at = row_address(keys, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
  constexpr std::uint32_t kRowBytes = Tile::kStride * 2, kValueRowBytes = Tile::kOutStride * 2;
  const std::uint32_t value_at =
      values + static_cast<std::uint32_t>((lane % 16 * Tile::kOutStride + lane / 16 * 8) * 2);

  std::uint32_t held[Tile::kHoldQueries ? kSixteens : 1][Tile::kHoldQueries ? kSteps : 1][4];
  float sums[kSixteens][kOutTiles][4] = {};
  float shift[kSixteens][2],
      sum[kSixteens][2] = {};  // of a row: the largest logit so far, scaled; of this lane's weights
#pragma unroll
  for (auto& pair : shift) pair[0] = pair[1] = kLowest * scale;

  for (int key0 = 0; key0 < seq_kv; key0 += kKeys) {
    ptx::cp_async_wait<1>();  // keys (and, the first time, queries)
    __syncthreads();
    if constexpr (Tile::kHoldQueries)
      if (key0 == 0)
#pragma unroll
        for (int m = 0; m < kSixteens; ++m)
#pragma unroll
          for (int step = 0; step < kSteps; ++step)
            ptx::ldmatrix_x4(held[m][step], query_at + m * 16 * kRowBytes + step * 32);

    float logits[kSixteens][kLogitTiles][4] = {};
    multiply_rows<T, kSteps, kRowBytes>(logits, key_at, [&](std::uint32_t(&a)[4], int m, int step) {
      if constexpr (Tile::kHoldQueries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = held[m][step][i];
      } else {
        ptx::ldmatrix_x4(a, query_at + m * 16 * kRowBytes + step * 32);
      }
    });
    __syncthreads();  // everyone has read the keys
    if (key0 + kKeys < seq_kv) copy_rows<Tile::kDim, kKeys>(keys, key_base, shape.k.seq, key0 + kKeys, seq_kv, dim);
    ptx::cp_async_commit();  // also an empty group, so that counts stay simple

    if (key0 + kKeys > seq_kv)
#pragma unroll
      for (int m = 0; m < kSixteens; ++m)
#pragma unroll
        for (int n = 0; n < kLogitTiles; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (key0 + 8 * n + lane % 4 * 2 + i % 2 >= seq_kv) logits[m][n][i] = -INFINITY;
#pragma unroll
    for (int m = 0; m < kSixteens; ++m)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float next = kLowest;
#pragma unroll
        for (int n = 0; n < kLogitTiles; ++n)
          next = fmaxf(next, fmaxf(logits[m][n][2 * row], logits[m][n][2 * row + 1]));
        next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
        next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
        next = fmaxf(shift[m][row], next * scale);
        const float rescale = exp2f(shift[m][row] - next);
        shift[m][row] = next;
        float fresh = 0;  // of this lane; lanes add up at the end
#pragma unroll
        for (int n = 0; n < kLogitTiles; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& logit = logits[m][n][2 * row + i];
            logit = exp2f(fmaf(logit, scale, -next));
            fresh += logit;
          }
        sum[m][row] = sum[m][row] * rescale + fresh;
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
          sums[m][n][2 * row] *= rescale;
          sums[m][n][2 * row + 1] *= rescale;
        }
      }

    ptx::cp_async_wait<1>();  // values
    __syncthreads();
    add_products<T, kValueRowBytes>(logits, value_at, sums);
    __syncthreads();  // everyone has read the values
    if (key0 + kKeys < seq_kv)
      copy_rows<Tile::kOut, kKeys>(values, value_base, shape.v.seq, key0 + kKeys, seq_kv, columns);
    ptx::cp_async_commit();
  }

  // Through the warp's own rows of the queries' memory, so that stores are 16 bytes wide.
  T* const staging = reinterpret_cast<T*>(shared);
#pragma unroll
  for (int m = 0; m < kSixteens; ++m)
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float total = sum[m][row];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float inverse = 1.0f / total;
      const int at = warp_row + 16 * m + 8 * row + lane / 4;
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n)
        *reinterpret_cast<std::uint32_t*>(staging + at * Tile::kStride + 8 * n + lane % 4 * 2) =
            pack_pair<T>(sums[m][n][2 * row] * inverse, sums[m][n][2 * row + 1] * inverse);
      if (lse != nullptr && column == 0 && lane % 4 == 0 && first + at < seq_q)
        lse[(std::int64_t{batch} * heads + head) * seq_q + first + at] = shift[m][row] * kLn2 + logf(total);
    }
  __syncwarp();
  T* const out_base = out + shape.out.at(batch, 0, first, head) + column;
  for (int i = lane; i < 16 * kSixteens * kOutTiles; i += 32) {
    const int row = warp_row + i / kOutTiles, d = i % kOutTiles * 8;
    if (first + row < seq_q && d < columns)
      store_16_bytes(out_base + row * shape.out.seq + d,
                     *reinterpret_cast<const uint4*>(staging + row * Tile::kStride + d));
  }
}

template <class T, class Tile>
Status launch_tile(const Shape& shape, const Tensors& t, const LaunchContext& context) {
  const std::int64_t blocks =
      Tile::kParts * shape.outer * shape.heads * ((shape.seq_q + Tile::kRows - 1) / Tile::kRows);
  const LaunchShape launch{.grid = static_cast<unsigned>(blocks),
                           .block = kThreads,
                           .shared_bytes = Tile::kBytes,
                           .shared_limit = Tile::kBytes};
  return launch_kernel("attention_sm80", attention_sm80<T, Tile>, launch, context.stream, shape,
                       static_cast<const T*>(t.q), static_cast<const T*>(t.k), static_cast<const T*>(t.v),
                       static_cast<T*>(t.out), t.lse);
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  return with_half_type(dtype, [&]<class T>(T) {
    const Shape shape = problem.shape();
    if (shape.dim <= 48) return launch_tile<T, Tile<48>>(shape, t, context);
    if (shape.dim <= 64) return launch_tile<T, Tile<64>>(shape, t, context);
    if (shape.dim <= 80) return launch_tile<T, Tile<80>>(shape, t, context);
    if (shape.dim <= 128) return launch_tile<T, Tile<128>>(shape, t, context);
    if (shape.dim <= 160) return launch_tile<T, Tile<160>>(shape, t, context);
    if (shape.dim <= 256) return launch_tile<T, Tile<256>>(shape, t, context);
    return launch_tile<T, Tile<512>>(shape, t, context);
  });
}

}  // namespace noisefloor::attention
