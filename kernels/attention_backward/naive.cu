// attention_backward, naive: a warp per query walks all keys, then a warp per key all queries. The first variant, and
// the obvious GPU code that the other variants are compared with element by element.
//
// Threads: 256, 8 queries or keys of a block; lane l of a warp holds elements l, l + 32, ... of its two rows and of
// their sums. No shared memory, no workspace: who walks the queries computes each one's delta again.
//
// Bound: issue slots, at every problem: two or three tree sums over a warp for each pair of a query and a key.
//
// Requires: nothing beyond grid limits; any layout, any head size up to 512.
//
// Numerics: fp32; tree sums over the head, one FMA chain over the other sequence.
//
// Source: original.
#include "kernels/attention_backward/attention_backward.h"
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::attention_backward {
namespace {

using attention::View;

constexpr int kThreads = 32 * static_cast<int>(kNaiveRows);

// Elements l, l + 32, ... of a head's row, zeros past its end.
template <int kLanes, class T>
__device__ __forceinline__ void load_row(const void* base, const View& view, std::int64_t start, int dim,
                                         float (&row)[kLanes]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kLanes; ++i)
    row[i] = lane + 32 * i < dim ? to_float(static_cast<const T*>(base)[start + (lane + 32 * i) * view.element]) : 0.0f;
}

template <int kLanes, class T>
__device__ __forceinline__ void store_row(void* base, const View& view, std::int64_t start, int dim,
                                          const float (&row)[kLanes]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kLanes; ++i)
    if (lane + 32 * i < dim) static_cast<T*>(base)[start + (lane + 32 * i) * view.element] = from_float<T>(row[i]);
}

template <int kLanes>
__device__ __forceinline__ float dot(const float (&x)[kLanes], const float (&y)[kLanes]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) sum = fmaf(x[i], y[i], sum);
  return lane_sum(sum);
}

template <int kLanes>
__device__ __forceinline__ void add(float weight, const float (&x)[kLanes], float (&sums)[kLanes]) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) sums[i] = fmaf(weight, x[i], sums[i]);
}

// One query of one head and its dq, or with kByKeys one key and its dk and dv.
template <int kLanes, bool kByKeys, class T>
__global__ void __launch_bounds__(kThreads) attention_backward_naive(const Shape shape, const Tensors t) {
  const std::int64_t own_length = kByKeys ? shape.seq_kv : shape.seq_q;
  const std::int64_t row = std::int64_t{blockIdx.x} * kNaiveRows + threadIdx.x / 32;
  if (row >= shape.outer * shape.heads * own_length) return;
  const std::int64_t head = row % shape.heads, own = row / shape.heads % own_length;
  const std::int64_t outer = row / shape.heads / own_length;
  const int dim = static_cast<int>(shape.dim);
  const auto load = [&](const void* base, const View& view, std::int64_t seq, float(&values)[kLanes]) {
    load_row<kLanes, T>(base, view, view.at(outer, 0, seq, head), dim, values);
  };
  const float* const lse = t.lse + (outer * shape.heads + head) * shape.seq_q;

  float q[kLanes], k[kLanes], v[kLanes], dout[kLanes], o[kLanes], sums[kLanes] = {}, value_sums[kLanes] = {};
  float delta = 0;
  if (kByKeys) {
    load(t.k, shape.k, own, k);
    load(t.v, shape.v, own, v);
  } else {
    load(t.q, shape.q, own, q);
    load(t.dout, shape.out, own, dout);
    load(t.o, shape.out, own, o);
    delta = dot(dout, o);
  }
  const std::int64_t other_length = kByKeys ? shape.seq_q : shape.seq_kv;
  for (std::int64_t other = 0; other < other_length; ++other) {
    if (kByKeys) {
      load(t.q, shape.q, other, q);
      load(t.dout, shape.out, other, dout);
      load(t.o, shape.out, other, o);
      delta = dot(dout, o);
    } else {
      load(t.k, shape.k, other, k);
      load(t.v, shape.v, other, v);
    }
    const float p = expf(fmaf(shape.scale, dot(q, k), -lse[kByKeys ? other : own]));
    const float s = shape.scale * p * (dot(dout, v) - delta);
    if (kByKeys) add(p, dout, value_sums);
    add(s, kByKeys ? q : k, sums);
  }
  const View& view = kByKeys ? shape.k : shape.q;
  store_row<kLanes, T>(kByKeys ? t.dk : t.dq, view, view.at(outer, 0, own, head), dim, sums);
  if (kByKeys) store_row<kLanes, T>(t.dv, shape.v, shape.v.at(outer, 0, own, head), dim, value_sums);
}

template <int kLanes, class T>
Status launch_both(const Shape& shape, const Tensors& t, const LaunchContext& context) {
  const auto blocks = [&](std::int64_t length) {
    return static_cast<unsigned>((shape.outer * shape.heads * length + kNaiveRows - 1) / kNaiveRows);
  };
  const Status status = launch_kernel("attention_backward_naive", attention_backward_naive<kLanes, false, T>,
                                      {.grid = blocks(shape.seq_q), .block = kThreads}, context.stream, shape, t);
  if (!status.ok()) return status;
  return launch_kernel("attention_backward_naive", attention_backward_naive<kLanes, true, T>,
                       {.grid = blocks(shape.seq_kv), .block = kThreads}, context.stream, shape, t);
}

}  // namespace

Status launch_naive(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  return with_type(dtype, [&]<class T>(T) {
    return problem.dim <= 256 ? launch_both<8, T>(problem.shape(), t, context)
                              : launch_both<16, T>(problem.shape(), t, context);
  });
}

}  // namespace noisefloor::attention_backward
