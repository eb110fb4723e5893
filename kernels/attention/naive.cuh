// The naive kernel of attention and temporal_attention. Device code only; the ideas are in naive.cu.
#pragma once

#include <cfloat>

#include "kernels/attention/strided.h"
#include "kernels/device/vector.cuh"

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
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) logit += __shfl_xor_sync(0xffffffffu, logit, offset);
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

}  // namespace noisefloor::attention
