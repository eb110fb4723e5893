// attention, naive: a warp per query walks all keys, one at a time, with the online softmax. The ladder's floor, and
// the obvious GPU code that the other rungs are compared with element by element.
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
#include "kernels/attention/naive.cuh"

#include "kernels/attention/launchers.h"
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"

namespace noisefloor::attention {

static_assert(kNaiveRows == kNaiveThreads / 32, "can_run counts blocks by it");

// Heads of more than 256, a kernel of its own: the others need half as many registers.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    attention_naive_wide(const Shape shape, const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                         T* __restrict__ out, float* __restrict__ lse) {
  walk_keys<2 * kNaiveMaxLanes>(shape, q, k, v, out, lse);
}

Status launch_naive(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  return with_type(dtype, [&]<class T>(T) {
    const Shape shape = problem.shape();
    const auto blocks = static_cast<unsigned>((shape.rows() + kNaiveRows - 1) / kNaiveRows);
    const auto kernel = shape.dim > 32 * kNaiveMaxLanes ? attention_naive_wide<T> : attention_naive<T>;
    kernel<<<blocks, kNaiveThreads, 0, context.stream>>>(shape, static_cast<const T*>(t.q), static_cast<const T*>(t.k),
                                                         static_cast<const T*>(t.v), static_cast<T*>(t.out), t.lse);
    return launch_status("attention_naive");
  });
}

}  // namespace noisefloor::attention
