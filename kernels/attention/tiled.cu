// attention, tiled: a block of queries and a block of keys in shared memory, register blocking, fp32 FMAs, an online
// softmax. 256 threads work as 16 x 16: a thread has neighbouring queries and every 16th key, then every 16th element
// of the head, so that shared reads are conflict-free or broadcasts. A row's maximum and sum are those of 16
// neighbouring lanes.
//
// Better than naive: a key that the block loads is used by 64 queries instead of one, an element that a thread reads
// from shared memory by 4, and the softmax rescales once per block of keys instead of once per key.
//
// Requires: nothing beyond grid limits; any layout, any head size up to 256. More than 48 KiB of shared memory.
// Bound: FP32 FMA at 4096 keys of 64; expected limiter: shared-memory reads (8 for 16 FMAs).
// Numerics: fp32, one FMA chain over the head and one over the keys.
// Source: the blocked online softmax of Dao et al., "FlashAttention" (arXiv:2205.14135).
#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kSide = 16;  // threads along keys or elements

template <int kMaxDim, int kPerThread, int kKeyBlock>
struct Tile {
  static constexpr int kDim = kMaxDim;
  static constexpr int kRowsPerThread = kPerThread;
  static constexpr int kRows = kPerThread * (kThreads / kSide);
  static constexpr int kKeys = kKeyBlock;
  static constexpr int kQueryFloats = kDim * kRows;
  // Keys lie transposed, values do not; each has one float of padding per row.
  static constexpr int kKeyStride = kKeys + 1, kValueStride = kDim + 1;
  static constexpr int kKeyFloats = kDim * kKeyStride > kKeys* kValueStride ? kDim* kKeyStride : kKeys* kValueStride;
  static constexpr int kBytes = (kQueryFloats + kKeyFloats + kRows * kKeys) * 4;
  static_assert(kBytes <= 57 * 1024);  // 48.3 KiB at head size 64, 56.5 at 128, 51 at 256
};

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads)
    attention_tiled(const Shape shape, const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                    T* __restrict__ out, float* __restrict__ lse) {
  constexpr int kRows = Tile::kRows, kKeys = Tile::kKeys, kPer = Tile::kRowsPerThread;
  constexpr int kColumns = kKeys / kSide, kElements = Tile::kDim / kSide;
  extern __shared__ float shared[];
  float* const queries = shared;                      // [dim][rows]
  float* const block = queries + Tile::kQueryFloats;  // keys [dim][keys + 1], then values [keys][dim + 1]
  float* const weights = block + Tile::kKeyFloats;    // [rows][keys]

  const std::int64_t blocks = (shape.seq_q + kRows - 1) / kRows;
  const std::int64_t first = blockIdx.x % blocks * kRows;
  const std::int64_t head = blockIdx.x / blocks % shape.heads;
  const std::int64_t inner = blockIdx.x / blocks / shape.heads % shape.inner;
  const std::int64_t outer = blockIdx.x / blocks / shape.heads / shape.inner;
  const int dim = static_cast<int>(shape.dim);
  const int column = static_cast<int>(threadIdx.x) % kSide;
  const int row0 = static_cast<int>(threadIdx.x) / kSide * kPer;

  const T* const query_base = q + shape.q.at(outer, inner, first, head);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * Tile::kDim; i += kThreads) {
    const int row = i / Tile::kDim, d = i % Tile::kDim;
    queries[d * kRows + row] = d < dim && first + row < shape.seq_q
                                   ? shape.scale * to_float(query_base[row * shape.q.seq + d * shape.q.element])
                                   : 0.0f;
  }

  float sums[kPer][kElements] = {};
  float highest[kPer], sum[kPer] = {};
#pragma unroll
  for (float& value : highest) value = kLowest;
  const T* const key_base = k + shape.k.at(outer, inner, 0, head);
  const T* const value_base = v + shape.v.at(outer, inner, 0, head);

  for (std::int64_t key0 = 0; key0 < shape.seq_kv; key0 += kKeys) {
    __syncthreads();  // the values of the step before have been read
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * Tile::kDim; i += kThreads) {
      const int key = i / Tile::kDim, d = i % Tile::kDim;
      block[d * Tile::kKeyStride + key] = d < dim && key0 + key < shape.seq_kv
                                              ? to_float(key_base[(key0 + key) * shape.k.seq + d * shape.k.element])
                                              : 0.0f;
    }
    __syncthreads();
    float logits[kPer][kColumns] = {};
    for (int d = 0; d < dim; ++d) {
      float row[kPer], key[kColumns];
#pragma unroll
      for (int r = 0; r < kPer; ++r) row[r] = queries[d * kRows + row0 + r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) key[c] = block[d * Tile::kKeyStride + column + c * kSide];
#pragma unroll
      for (int r = 0; r < kPer; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) logits[r][c] = fmaf(row[r], key[c], logits[r][c]);
    }

#pragma unroll
    for (int r = 0; r < kPer; ++r) {
      float next = highest[r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (key0 + column + c * kSide >= shape.seq_kv) logits[r][c] = -INFINITY;
        next = fmaxf(next, logits[r][c]);
      }
#pragma unroll
      for (int offset = kSide / 2; offset > 0; offset /= 2)
        next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, offset));
      const float rescale = __expf(highest[r] - next);
      highest[r] = next;
      sum[r] *= rescale;  // this thread's share of the row's sum
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float weight = __expf(logits[r][c] - next);
        sum[r] += weight;
        weights[(row0 + r) * kKeys + column + c * kSide] = weight;
      }
#pragma unroll
      for (float& value : sums[r]) value *= rescale;
    }
    __syncthreads();  // the keys have been read
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * Tile::kDim; i += kThreads) {
      const int key = i / Tile::kDim, d = i % Tile::kDim;
      block[key * Tile::kValueStride + d] = d < dim && key0 + key < shape.seq_kv
                                                ? to_float(value_base[(key0 + key) * shape.v.seq + d * shape.v.element])
                                                : 0.0f;
    }
    __syncthreads();
    for (int key = 0; key < kKeys; ++key) {  // weights past the last key are 0
      float weight[kPer], value[kElements];
#pragma unroll
      for (int r = 0; r < kPer; ++r) weight[r] = weights[(row0 + r) * kKeys + key];
#pragma unroll
      for (int e = 0; e < kElements; ++e) value[e] = block[key * Tile::kValueStride + column + e * kSide];
#pragma unroll
      for (int r = 0; r < kPer; ++r)
#pragma unroll
        for (int e = 0; e < kElements; ++e) sums[r][e] = fmaf(weight[r], value[e], sums[r][e]);
    }
  }

  T* const out_base = out + shape.out.at(outer, inner, first, head);
#pragma unroll
  for (int r = 0; r < kPer; ++r) {
    float total = sum[r];
#pragma unroll
    for (int offset = kSide / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
    if (first + row0 + r >= shape.seq_q) continue;
#pragma unroll
    for (int e = 0; e < kElements; ++e)
      if (column + e * kSide < dim)
        out_base[(row0 + r) * shape.out.seq + column + e * kSide] = from_float<T>(sums[r][e] / total);
    if (lse != nullptr && column == 0)
      lse[(outer * shape.heads + head) * shape.seq_q + first + row0 + r] = highest[r] + logf(total);
  }
}

template <class T, class Tile>
Status launch_tile(const Shape& shape, const Tensors& t, const LaunchContext& context) {
  const std::int64_t blocks = shape.outer * shape.inner * shape.heads * ((shape.seq_q + Tile::kRows - 1) / Tile::kRows);
  const LaunchShape launch{.grid = static_cast<unsigned>(blocks),
                           .block = kThreads,
                           .shared_bytes = Tile::kBytes,
                           .shared_limit = Tile::kBytes};
  return launch_kernel("attention_tiled", attention_tiled<T, Tile>, launch, context.stream, shape,
                       static_cast<const T*>(t.q), static_cast<const T*>(t.k), static_cast<const T*>(t.v),
                       static_cast<T*>(t.out), t.lse);
}

}  // namespace

Status launch_tiled(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  return with_type(dtype, [&]<class T>(T) {
    const Shape shape = problem.shape();
    if (shape.dim <= 64) return launch_tile<T, Tile<64, 4, 64>>(shape, t, context);
    if (shape.dim <= 128) return launch_tile<T, Tile<128, 4, 32>>(shape, t, context);
    return launch_tile<T, Tile<256, 2, 16>>(shape, t, context);
  });
}

}  // namespace noisefloor::attention
