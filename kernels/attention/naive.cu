// attention, naive: a warp per query walks all keys, one at a time, with the online softmax. The first variant, and
// the obvious GPU code that the other variants are compared with element by element.
//
// Threads: 256, 8 queries of a block; lane l of a warp holds elements l, l + 32, ... of its query and its output. No
// shared memory: every query reads every key and value again, through L1 and L2.
//
// Bound: issue slots, at every problem: per key five shuffles, two exponentials and a handful of FMAs per warp.
//
// Requires: nothing beyond grid limits; any layout, any head size up to 512.
//
// Numerics: fp32; logits are tree sums over the head, the output one FMA chain over the keys.
//
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867).
#include <cfloat>

#include "kernels/attention/attention.h"
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::attention {

inline constexpr int kNaiveThreads = 256;
inline constexpr int kNaiveMaxLanes = 8;  // elements of a head that a lane holds: 256 / 32

// One warp per query of one head; lane l holds elements l, l + 32, ... of the query and of the output, kLanes at most.
template <int kLanes, class T>
__device__ __forceinline__ void walk_keys(const Shape& shape, const T* __restrict__ q, const T* __restrict__ k,
                                          const T* __restrict__ v, T* __restrict__ out, float* __restrict__ lse) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * (kNaiveThreads / 32) + threadIdx.x / 32;
  if (row >= shape.rows()) return;
  const std::int64_t head = row % shape.heads;
  const std::int64_t inner = row / shape.heads % shape.inner;
  const std::int64_t query = row / shape.heads / shape.inner % shape.seq_q;
  const std::int64_t outer = row / shape.heads / shape.inner / shape.seq_q;

  const int dim = static_cast<int>(shape.dim);
  float mine[kLanes], sums[kLanes] = {};
  const T* const query_row = q + shape.q.at(outer, inner, query, head);
#pragma unroll
  for (int i = 0; i < kLanes; ++i)
    mine[i] = lane + 32 * i < dim ? shape.scale * to_float(query_row[(lane + 32 * i) * shape.q.element]) : 0.0f;

  float highest = -FLT_MAX, sum = 0;
  const T* key = k + shape.k.at(outer, inner, 0, head);
  const T* value = v + shape.v.at(outer, inner, 0, head);
  for (std::int64_t j = 0; j < shape.seq_kv; ++j, key += shape.k.seq, value += shape.v.seq) {
    float logit = 0;
#pragma unroll
    for (int i = 0; i < kLanes; ++i)
      if (lane + 32 * i < dim) logit = fmaf(mine[i], to_float(key[(lane + 32 * i) * shape.k.element]), logit);
    logit = lane_sum(logit);
    // What was summed under a lower maximum is scaled down to the new one.
    const float next = fmaxf(highest, logit);
    const float rescale = expf(highest - next), weight = expf(logit - next);
    highest = next;
    sum = fmaf(sum, rescale, weight);
#pragma unroll
    for (int i = 0; i < kLanes; ++i)
      if (lane + 32 * i < dim)
        sums[i] = fmaf(weight, to_float(value[(lane + 32 * i) * shape.v.element]), sums[i] * rescale);
  }

  T* const out_row = out + shape.out.at(outer, inner, query, head);
#pragma unroll
  for (int i = 0; i < kLanes; ++i)
    if (lane + 32 * i < dim) out_row[lane + 32 * i] = from_float<T>(sums[i] / sum);
  if (lse != nullptr && lane == 0) lse[(outer * shape.heads + head) * shape.seq_q + query] = highest + logf(sum);
}

template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    attention_naive(const Shape shape, const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                    T* __restrict__ out, float* __restrict__ lse) {
  walk_keys<kNaiveMaxLanes>(shape, q, k, v, out, lse);
}

static_assert(kNaiveRows == kNaiveThreads / 32, "can_run counts blocks by it");

// Heads of more than 256, a kernel of its own: the others need half as many registers.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    attention_naive_wide(const Shape shape, const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                         T* __restrict__ out, float* __restrict__ lse) {
  walk_keys<2 * kNaiveMaxLanes>(shape, q, k, v, out, lse);
}

Status launch_naive_attention(const Shape& shape, DType dtype, const void* q, const void* k, const void* v, void* out,
                              float* lse, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>((shape.rows() + kNaiveRows - 1) / kNaiveRows);
    const auto kernel = shape.dim > 32 * kNaiveMaxLanes ? attention_naive_wide<T> : attention_naive<T>;
    return launch_kernel("attention_naive", kernel, {.grid = blocks, .block = kNaiveThreads}, context.stream, shape,
                         static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
                         static_cast<T*>(out), lse);
  });
}

Status launch_naive(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  return launch_naive_attention(problem.shape(), dtype, t.q, t.k, t.v, t.out, t.lse, context);
}

}  // namespace noisefloor::attention
