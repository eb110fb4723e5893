// attention_backward on tensor cores from sm_80, by mma.sync m16n8k16. A first launch makes two terms of each query
// (terms.cuh). Then one kernel owns 64 or 128 queries and walks the keys for dQ, one owns keys and walks the queries
// for dK and dV. Four warps split a block's own rows: the logits' product, and that of the weights' gradients, leave a
// warp's rows in registers in the shape of the A operand with which the last products begin. The next rows of the other
// sequence are copied (cp.async) meanwhile.
//
// Better than tiled: tensor cores for all products, 16-byte asynchronous copies, weights never in shared memory.
//
// Requires: bf16 or fp16, head size a multiple of 8 up to 256, a layout with contiguous heads.
// Bound: tensor pipe at 1024 keys of 64, where 7 products stand for 5; expected limiter: shared-memory reads of B.
// Numerics: fp32 sums in the tensor core, exponentials by ex2.approx, weights and their gradients rounded to 16 bits
// for the last products; deterministic. Source: Dao, "FlashAttention-2" (arXiv:2307.08691), but dQ in a pass of its
// own; PTX ISA (mma, ldmatrix, cp.async).
#include "kernels/attention/mma_sm80.cuh"
#include "kernels/attention_backward/terms.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::attention_backward {
namespace {

using attention::View;

constexpr int kThreads = 128;

template <int kHeadDim>
struct Sm80Tile {
  static constexpr int kDim = kHeadDim, kSteps = kDim / 16;
  static constexpr int kSixteens = kDim <= 64 ? 2 : 1;  // groups of 16 own rows per warp
  static constexpr int kRows = 64 * kSixteens, kWarpRows = 16 * kSixteens;
  static constexpr int kBlock = kDim <= 128 ? 32 : 16;  // rows of the other sequence at a time
  static constexpr int kStride = kDim + 8;              // elements
  static_assert(kStride / 8 % 2 == 1, "rows an odd number of 16-byte chunks apart: ldmatrix meets no bank conflict");
  static_assert(kRows <= kTermRows && kTermRows % kBlock == 0, "terms are read without bounds");
  static constexpr std::uint32_t kRowBytes = kStride * 2, kOwnBytes = kRows * kRowBytes;
  static constexpr std::uint32_t kBlockBytes = kBlock * kRowBytes, kStageBytes = 2 * kBlockBytes;
  static constexpr std::uint32_t kBytes = 2 * kOwnBytes + 2 * kStageBytes;
  static_assert(kBytes <= 99 * 1024);  // sm_86's; 30 KiB at head size 32, 54 at 64, 68 at 128, 99 at 256
};

// Queries and dout, or keys and values: where one head of them begins.
template <class T>
struct Side {
  const T* rows[2];
  std::int64_t strides[2];
  int length;
};

template <class T>
__device__ __forceinline__ Side<T> side_of(const Shape& shape, const Tensors& t, bool keys, unsigned batch,
                                           unsigned head) {
  const View &first = keys ? shape.k : shape.q, &second = keys ? shape.v : shape.out;
  return {{static_cast<const T*>(keys ? t.k : t.q) + first.at(batch, 0, 0, head),
           static_cast<const T*>(keys ? t.v : t.dout) + second.at(batch, 0, 0, head)},
          {first.seq, second.seq},
          static_cast<int>(keys ? shape.seq_kv : shape.seq_q)};
}

// Rows [first, first + kRows) of one head into shared memory; zeros past the last row and from `dim` to kDim.
template <class Tile, int kRows, class T>
__device__ __forceinline__ void copy_rows(std::uint32_t to, const Side<T>& side, int which, int first, int dim) {
  constexpr int kChunks = Tile::kDim / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, d = i % kChunks * 8;
    const bool valid = first + row < side.length && d < dim;
    ptx::cp_async_16(to + static_cast<std::uint32_t>(row) * Tile::kRowBytes + static_cast<std::uint32_t>(d * 2),
                     side.rows[which] + (valid ? (first + row) * side.strides[which] + d : 0), valid);
  }
}

template <class Tile>
using Logits = float[Tile::kSixteens][Tile::kBlock / 8][4];
template <class Tile>
using HeadSums = float[Tile::kSixteens][Tile::kDim / 8][4];

// Stores the warp's sums through its own rows of shared memory, so that stores are 16 bytes wide. `to`: the head's
// first row; `first`: the warp's.
template <class T, class Tile>
__device__ __forceinline__ void store_sums(const HeadSums<Tile>& sums, float scale, T* staging, T* to,
                                           std::int64_t stride, int first, int length, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < Tile::kSixteens; ++m)
#pragma unroll
    for (int n = 0; n < Tile::kDim / 8; ++n)
#pragma unroll
      for (int row = 0; row < 2; ++row)
        *reinterpret_cast<std::uint32_t*>(staging + (16 * m + 8 * row + lane / 4) * Tile::kStride + 8 * n +
                                          lane % 4 * 2) =
            pack_pair<T>(sums[m][n][2 * row] * scale, sums[m][n][2 * row + 1] * scale);
  __syncwarp();
  for (int i = lane; i < Tile::kWarpRows * (Tile::kDim / 8); i += 32) {
    const int row = i / (Tile::kDim / 8), d = i % (Tile::kDim / 8) * 8;
    if (first + row < length && d < dim)
      store_16_bytes(to + (first + row) * stride + d,
                     *reinterpret_cast<const uint4*>(staging + row * Tile::kStride + d));
  }
}

template <class T, class Tile, Pass kPass>
__global__ void __launch_bounds__(kThreads)
    attention_backward_sm80(const Shape shape, const Tensors t, const float4* __restrict__ terms) {
  constexpr bool kByKeys = by_keys(kPass), kNeedsValues = kPass != Pass::values;
  constexpr int kSixteens = Tile::kSixteens, kTiles = Tile::kBlock / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  const std::uint32_t own = ptx::shared_address(shared), stages = own + 2 * Tile::kOwnBytes;

  const auto heads = static_cast<unsigned>(shape.heads);
  const int own_length = static_cast<int>(kByKeys ? shape.seq_kv : shape.seq_q), dim = static_cast<int>(shape.dim);
  const auto blocks = static_cast<unsigned>((own_length + Tile::kRows - 1) / Tile::kRows);
  const int first = static_cast<int>(blockIdx.x % blocks) * Tile::kRows;
  const unsigned head = blockIdx.x / blocks % heads, batch = blockIdx.x / blocks / heads;
  const auto mine = side_of<T>(shape, t, kByKeys, batch, head), other = side_of<T>(shape, t, !kByKeys, batch, head);
  terms += (std::int64_t{batch} * heads + head) * (term_rows(shape.seq_q) / 2);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * Tile::kWarpRows;
  const float scale = shape.scale * attention::kLog2E;  // exponentials are powers of 2

  // By keys, the terms of two queries lie behind the head of the first one's row.
  const auto copy_block = [&](int at, int stage) {
    const std::uint32_t to = stages + static_cast<std::uint32_t>(stage) * Tile::kStageBytes;
    copy_rows<Tile, Tile::kBlock>(to, other, 0, at, dim);
    copy_rows<Tile, Tile::kBlock>(to + Tile::kBlockBytes, other, 1, at, dim);
    if (kByKeys && threadIdx.x < Tile::kBlock / 2)
      ptx::cp_async_16(to + 2 * threadIdx.x * Tile::kRowBytes + Tile::kDim * 2, terms + at / 2 + threadIdx.x, true);
  };
  copy_rows<Tile, Tile::kRows>(own, mine, 0, first, dim);
  if (kNeedsValues) copy_rows<Tile, Tile::kRows>(own + Tile::kOwnBytes, mine, 1, first, dim);
  copy_block(0, 0);
  ptx::cp_async_commit();

  float log2_sums[kSixteens][2], deltas[kSixteens][2];  // of this lane's queries
  if constexpr (!kByKeys)
#pragma unroll
    for (int i = 0; i < 2 * kSixteens; ++i) {
      const int row = first + warp_row + 8 * i + lane / 4;
      const float* const pair = reinterpret_cast<const float*>(terms + row / 2) + row % 2;
      log2_sums[i / 2][i % 2] = pair[0];
      deltas[i / 2][i % 2] = pair[2];
    }

  // Of this lane: rows of A and of the transposed B go with lane % 16, those of B (two tiles of 8 rows) with lane % 8
  // and lane / 16; the other bit selects a chunk of 8 elements.
  const auto offset_of = [](int row, int element) {
    return static_cast<std::uint32_t>((row * Tile::kStride + element) * 2);
  };
  const std::uint32_t a_at = own + offset_of(warp_row + lane % 16, lane / 16 * 8);
  const std::uint32_t b_at = offset_of(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
  const std::uint32_t transposed_at = offset_of(lane % 16, lane / 16 * 8);

  HeadSums<Tile> sums = {}, value_sums = {};
  for (int at = 0, stage = 0; at < other.length; at += Tile::kBlock, stage ^= 1) {
    if (at + Tile::kBlock < other.length) copy_block(at + Tile::kBlock, stage ^ 1);
    ptx::cp_async_commit();  // also an empty group, so that counts stay simple
    ptx::cp_async_wait<1>();
    __syncthreads();
    const std::uint32_t block = stages + static_cast<std::uint32_t>(stage) * Tile::kStageBytes;
    Logits<Tile> p = {}, s = {};
    const auto multiply = [&](Logits<Tile>& logits, std::uint32_t a_from, std::uint32_t b_from) {
      attention::multiply_rows<T, Tile::kSteps, Tile::kRowBytes>(
          logits, b_from, [&](std::uint32_t(&a)[4], int m, int step) {
            ptx::ldmatrix_x4(a, a_from + m * 16 * Tile::kRowBytes + step * 32);
          });
    };
    multiply(p, a_at, block + b_at);
    if (kNeedsValues) multiply(s, a_at + Tile::kOwnBytes, block + Tile::kBlockBytes + b_at);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int column = 8 * n + lane % 4 * 2;
      const uint4 pair = kByKeys ? ptx::load_shared_16(block + offset_of(column, Tile::kDim)) : uint4{};
#pragma unroll
      for (int m = 0; m < kSixteens; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float log2_sum = kByKeys ? __uint_as_float(i % 2 ? pair.y : pair.x) : log2_sums[m][i / 2];
          const float delta = kByKeys ? __uint_as_float(i % 2 ? pair.w : pair.z) : deltas[m][i / 2];
          const bool exists = kByKeys || at + column + i % 2 < other.length;
          p[m][n][i] = exists ? ptx::exp2_approx(fmaf(p[m][n][i], scale, -log2_sum)) : 0.0f;
          s[m][n][i] = p[m][n][i] * (s[m][n][i] - delta);
        }
    }
    constexpr bool kValuesAlone = kPass == Pass::values;
    attention::add_products<T, Tile::kRowBytes>(kValuesAlone ? p : s,
                                                block + (kValuesAlone ? Tile::kBlockBytes : 0) + transposed_at, sums);
    if (kPass == Pass::keys_and_values)
      attention::add_products<T, Tile::kRowBytes>(p, block + Tile::kBlockBytes + transposed_at, value_sums);
    __syncthreads();  // everyone has read the block
  }

  T* const staging = reinterpret_cast<T*>(shared) + warp_row * Tile::kStride;
  const auto store = [&](const HeadSums<Tile>& of, float by, T* rows, void* base, const View& view) {
    store_sums<T, Tile>(of, by, rows, static_cast<T*>(base) + view.at(batch, 0, 0, head), view.seq, first + warp_row,
                        own_length, dim);
  };
  if (kPass == Pass::values) store(sums, 1, staging, t.dv, shape.v);
  if (kPass != Pass::values) store(sums, shape.scale, staging, kByKeys ? t.dk : t.dq, kByKeys ? shape.k : shape.q);
  if (kPass == Pass::keys_and_values) store(value_sums, 1, staging + Tile::kRows * Tile::kStride, t.dv, shape.v);
}

template <class T, class Tile, Pass kPass>
Status launch_pass_sm80(const Shape& shape, const Tensors& t, const float4* terms, const LaunchContext& context) {
  const std::int64_t length = by_keys(kPass) ? shape.seq_kv : shape.seq_q;
  const std::int64_t blocks = shape.outer * shape.heads * ((length + Tile::kRows - 1) / Tile::kRows);
  return launch_kernel("attention_backward_sm80", attention_backward_sm80<T, Tile, kPass>,
                       {.grid = static_cast<unsigned>(blocks),
                        .block = kThreads,
                        .shared_bytes = Tile::kBytes,
                        .shared_limit = Tile::kBytes},
                       context.stream, shape, t, terms);
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& problem, DType dtype, const Tensors& t, const Scratch& scratch,
                               const LaunchContext& context) {
  return launch_passes<32, 64, 96, 128, 256>(
      problem, dtype, t, scratch, context, [&]<class T, int kDim, Pass kPass>(const Shape& shape, const float4* terms) {
        return launch_pass_sm80<T, Sm80Tile<kDim>, kPass>(shape, t, terms, context);
      });
}

}  // namespace noisefloor::attention_backward
