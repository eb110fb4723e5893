// attention_backward, tiled: three kernels, shared-memory tiles, register blocking, fp32 FMAs. The first sums delta for
// every query; the second owns a tile of queries and walks the keys a block at a time, for dq; the third owns keys and
// walks the queries, for dk and dv. Threads work as rows x 16: a thread has neighbouring rows of its tile, and every
// 16th row of the block, then every 16th element of the head. The block lies transposed, an odd number of floats to a
// row: the first products read it along rows, the second along the head, without conflicts either way.
//
// Better than naive: a row that the block loads is used by all rows of its tile instead of one, an element that a
// thread reads from shared memory by several, and no sum over a warp stands between products.
//
// Requires: nothing beyond grid limits; any layout, any head size up to 256.
// Bound: FP32 FMA at 4096 keys of 64; expected limiter: shared-memory reads (12 for 16 FMAs).
// Numerics: fp32, one FMA chain over the head and one over the other sequence; deterministic.
// Source: original, after the second pass of Dao et al., "FlashAttention" (arXiv:2205.14135).
#include "kernels/attention_backward/attention_backward.h"
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::attention_backward {
namespace {

using attention::View;

constexpr int kSide = 16;  // threads along a block's rows, or along elements
constexpr int kDeltaThreads = 256;

template <int kMaxDim, int kPerThread, int kRowThreads, int kBlock>
struct Tile {
  static constexpr int kDim = kMaxDim, kRowsPerThread = kPerThread, kThreads = kRowThreads * kSide;
  static constexpr int kRows = kPerThread * kRowThreads, kColumns = kBlock;
  static constexpr int kRowStride = kRows + 1, kColumnStride = kColumns + 1;
  static constexpr int kOwnFloats = kDim * kRowStride, kBlockFloats = kDim * kColumnStride;
  static constexpr int kWeightFloats = kRows * kColumns;
  static constexpr int kBytes = 2 * (kOwnFloats + kBlockFloats + kWeightFloats) * 4;
  static_assert(kBytes <= 57 * 1024);  // 41 KiB at head size 64, 54.3 at 128, 53 at 256
};

// A warp a query.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_delta(const Shape shape, const void* o, const void* dout, float* delta) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kDeltaThreads / 32) + threadIdx.x / 32;
  if (row >= shape.outer * shape.heads * shape.seq_q) return;
  const std::int64_t start =
      shape.out.at(row / shape.seq_q / shape.heads, 0, row % shape.seq_q, row / shape.seq_q % shape.heads);
  float sum = 0;
  for (std::int64_t d = threadIdx.x % 32; d < shape.dim; d += 32)
    sum = fmaf(to_float(static_cast<const T*>(o)[start + d]), to_float(static_cast<const T*>(dout)[start + d]), sum);
  sum = lane_sum(sum);
  if (threadIdx.x % 32 == 0) delta[row] = sum;
}

// Rows [first, first + kCount) of a head, transposed: to[d][row]; zeros past their number and past the head.
template <class Tile, int kCount, int kStride, class T>
__device__ __forceinline__ void load_transposed(const T* from, const View& view, std::int64_t first,
                                                std::int64_t length, int dim, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kCount * Tile::kDim; i += Tile::kThreads) {
    const int row = i / Tile::kDim, d = i % Tile::kDim;
    to[d * kStride + row] =
        d < dim && first + row < length ? to_float(from[(first + row) * view.seq + d * view.element]) : 0.0f;
  }
}

// sums[r][e] += the sum over the block's rows of weights[r] times their elements.
template <class Tile, int kElements>
__device__ __forceinline__ void add_block(const float* weights, const float* block, int row0, int column,
                                          float (&sums)[Tile::kRowsPerThread][kElements]) {
  for (int c = 0; c < Tile::kColumns; ++c) {
    float weight[Tile::kRowsPerThread], element[kElements];
#pragma unroll
    for (int r = 0; r < Tile::kRowsPerThread; ++r) weight[r] = weights[(row0 + r) * Tile::kColumns + c];
#pragma unroll
    for (int e = 0; e < kElements; ++e) element[e] = block[(column + e * kSide) * Tile::kColumnStride + c];
#pragma unroll
    for (int r = 0; r < Tile::kRowsPerThread; ++r)
#pragma unroll
      for (int e = 0; e < kElements; ++e) sums[r][e] = fmaf(weight[r], element[e], sums[r][e]);
  }
}

template <class Tile, int kElements, class T>
__device__ __forceinline__ void store_rows(T* to, const View& view, std::int64_t first, std::int64_t length, int dim,
                                           int column, const float (&sums)[Tile::kRowsPerThread][kElements]) {
#pragma unroll
  for (int r = 0; r < Tile::kRowsPerThread; ++r)
#pragma unroll
    for (int e = 0; e < kElements; ++e)
      if (first + r < length && column + e * kSide < dim)
        to[(first + r) * view.seq + (column + e * kSide) * view.element] = from_float<T>(sums[r][e]);
}

template <class T, class Tile, bool kByKeys>
__global__ void __launch_bounds__(Tile::kThreads, 4)
    attention_backward_tiled(const Shape shape, const Tensors t, const float* __restrict__ deltas) {
  constexpr int kPer = Tile::kRowsPerThread, kColumns = Tile::kColumns / kSide, kElements = Tile::kDim / kSide;
  extern __shared__ float shared[];
  float* const own[] = {shared, shared + Tile::kOwnFloats};
  float* const block[] = {own[1] + Tile::kOwnFloats, own[1] + Tile::kOwnFloats + Tile::kBlockFloats};
  float* const p_of = block[1] + Tile::kBlockFloats;
  float* const s_of = p_of + Tile::kWeightFloats;

  const std::int64_t own_length = kByKeys ? shape.seq_kv : shape.seq_q;
  const std::int64_t other_length = kByKeys ? shape.seq_q : shape.seq_kv;
  const std::int64_t tiles = (own_length + Tile::kRows - 1) / Tile::kRows;
  const std::int64_t first = blockIdx.x % tiles * Tile::kRows;
  const std::int64_t head = blockIdx.x / tiles % shape.heads, outer = blockIdx.x / tiles / shape.heads;
  const int dim = static_cast<int>(shape.dim);
  const int column = static_cast<int>(threadIdx.x) % kSide, row0 = static_cast<int>(threadIdx.x) / kSide * kPer;
  const auto start = [&](const void* base, const View& view) {
    return static_cast<const T*>(base) + view.at(outer, 0, 0, head);
  };
  const T* const sides[2][2] = {{start(t.q, shape.q), start(t.dout, shape.out)},
                                {start(t.k, shape.k), start(t.v, shape.v)}};
  const View* const views[2][2] = {{&shape.q, &shape.out}, {&shape.k, &shape.v}};
  const float* const lse = t.lse + (outer * shape.heads + head) * shape.seq_q;
  const float* const delta = deltas + (outer * shape.heads + head) * shape.seq_q;
#pragma unroll
  for (int s = 0; s < 2; ++s)
    load_transposed<Tile, Tile::kRows, Tile::kRowStride>(sides[kByKeys][s], *views[kByKeys][s], first, own_length, dim,
                                                         own[s]);

  float sums[kPer][kElements] = {}, value_sums[kPer][kElements] = {};
  for (std::int64_t at = 0; at < other_length; at += Tile::kColumns) {
    __syncthreads();  // the block and the weights of the step before have been read
#pragma unroll
    for (int s = 0; s < 2; ++s)
      load_transposed<Tile, Tile::kColumns, Tile::kColumnStride>(sides[!kByKeys][s], *views[!kByKeys][s], at,
                                                                 other_length, dim, block[s]);
    __syncthreads();
    float logits[kPer][kColumns] = {}, gradients[kPer][kColumns] = {};
    for (int d = 0; d < dim; ++d) {
#pragma unroll
      for (int r = 0; r < kPer; ++r) {
        const float x = own[0][d * Tile::kRowStride + row0 + r], y = own[1][d * Tile::kRowStride + row0 + r];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          logits[r][c] = fmaf(x, block[0][d * Tile::kColumnStride + column + c * kSide], logits[r][c]);
          gradients[r][c] = fmaf(y, block[1][d * Tile::kColumnStride + column + c * kSide], gradients[r][c]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kPer; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const std::int64_t row = first + row0 + r, other = at + column + c * kSide, query = kByKeys ? other : row;
        const bool exists = row < own_length && other < other_length;
        const float p = exists ? __expf(fmaf(shape.scale, logits[r][c], -lse[query])) : 0.0f;
        const int place = (row0 + r) * Tile::kColumns + column + c * kSide;
        if (kByKeys) p_of[place] = p;
        s_of[place] = exists ? shape.scale * p * (gradients[r][c] - delta[query]) : 0.0f;
      }
    __syncthreads();
    add_block<Tile>(s_of, block[0], row0, column, sums);
    if (kByKeys) add_block<Tile>(p_of, block[1], row0, column, value_sums);
  }

  const auto store = [&](void* base, const View& view, const float(&of)[kPer][kElements]) {
    store_rows<Tile>(static_cast<T*>(base) + view.at(outer, 0, 0, head), view, first + row0, own_length, dim, column,
                     of);
  };
  store(kByKeys ? t.dk : t.dq, kByKeys ? shape.k : shape.q, sums);
  if (kByKeys) store(t.dv, shape.v, value_sums);
}

template <class T, class Tile, bool kByKeys>
Status launch_pass(const Shape& shape, const Tensors& t, const float* delta, const LaunchContext& context) {
  const std::int64_t length = kByKeys ? shape.seq_kv : shape.seq_q;
  const std::int64_t blocks = shape.outer * shape.heads * ((length + Tile::kRows - 1) / Tile::kRows);
  return launch_kernel("attention_backward_tiled", attention_backward_tiled<T, Tile, kByKeys>,
                       {.grid = static_cast<unsigned>(blocks),
                        .block = Tile::kThreads,
                        .shared_bytes = Tile::kBytes,
                        .shared_limit = Tile::kBytes},
                       context.stream, shape, t, delta);
}

template <class T, class Tile>
Status launch_all(const Shape& shape, const Tensors& t, float* delta, const LaunchContext& context) {
  constexpr std::int64_t kQueries = kDeltaThreads / 32;
  const std::int64_t queries = shape.outer * shape.heads * shape.seq_q;
  Status status =
      launch_kernel("attention_delta", attention_delta<T>,
                    {.grid = static_cast<unsigned>((queries + kQueries - 1) / kQueries), .block = kDeltaThreads},
                    context.stream, shape, t.o, t.dout, delta);
  if (status.ok()) status = launch_pass<T, Tile, false>(shape, t, delta, context);
  return status.ok() ? launch_pass<T, Tile, true>(shape, t, delta, context) : status;
}

}  // namespace

Status launch_tiled(const Problem& problem, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  auto* const delta = static_cast<float*>(scratch.workspace);
  return with_type(dtype, [&]<class T>(T) {
    const Shape shape = problem.shape();
    if (shape.dim <= 64) return launch_all<T, Tile<64, 4, 8, 32>>(shape, t, delta, context);
    if (shape.dim <= 128) return launch_all<T, Tile<128, 4, 8, 16>>(shape, t, delta, context);
    return launch_all<T, Tile<256, 1, 8, 16>>(shape, t, delta, context);
  });
}

}  // namespace noisefloor::attention_backward
