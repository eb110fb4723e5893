// What the tensor-core variants of attention_backward share: the passes, and the first launch, which turns o, dout and
// lse into two terms of each query, so that a weight is p = exp2(c s - log2_sum), its logit's gradient
// p (dout v - delta) by the scale.
#pragma once

#include <cmath>

#include "kernels/attention_backward/attention_backward.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::attention_backward {

// What a block sums up for its own rows while it walks the other sequence. A head too wide for two sums gets dK and dV
// in a pass each.
enum class Pass { queries, keys_and_values, keys, values };
constexpr bool by_keys(Pass pass) {
  return pass != Pass::queries;
}

// terms: float4 [outer, heads, term_rows(seq_q) / 2]: of a pair of queries lse log2(e) and then delta. Behind the last
// query the former is infinite: no weight there. A group of kLanes lanes has a query; queries of all heads as they lie.
inline constexpr int kTermThreads = 256;

template <class T, int kLanes>
static __global__ void __launch_bounds__(kTermThreads)
    attention_backward_terms(const Shape shape, const T* __restrict__ o, const T* __restrict__ dout,
                             const float* __restrict__ lse, float* __restrict__ terms) {
  const auto heads = static_cast<unsigned>(shape.heads), length = static_cast<unsigned>(term_rows(shape.seq_q));
  const unsigned row = blockIdx.x * (kTermThreads / kLanes) + threadIdx.x / kLanes;
  const unsigned head = row % heads, query = row / heads % length, outer = row / heads / length;
  const int d = static_cast<int>(threadIdx.x) % kLanes * 8;
  const bool exists = outer < shape.outer && query < shape.seq_q;
  ptx::griddepcontrol_wait();
  float sum = 0;
  if (exists && d < shape.dim) {
    const std::int64_t at = shape.out.at(outer, 0, query, head) + d;
    float x[8], y[8];
    unpack_vector<T>(load_16_bytes<CacheHint::read_only>(o + at), x);
    unpack_vector<T>(load_16_bytes<CacheHint::read_only>(dout + at), y);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(x[i], y[i], sum);
  }
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (outer >= shape.outer || d != 0) return;
  const std::int64_t sequence = std::int64_t{outer} * heads + head;
  const float log2_sum = exists ? lse[sequence * shape.seq_q + query] * attention::kLog2E : INFINITY;
  float* const pair = terms + 2 * (sequence * length + query / 2 * 2) + query % 2;
  pair[0] = log2_sum;
  pair[2] = sum;
}

template <class T>
Status launch_terms(const Shape& shape, const Tensors& t, float4* terms, const LaunchContext& context) {
  const std::int64_t rows = shape.outer * shape.heads * term_rows(shape.seq_q);
  const auto launch = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
    constexpr int kRows = kTermThreads / kLanes;
    return launch_kernel("attention_backward_terms", attention_backward_terms<T, kLanes>,
                         {.grid = static_cast<unsigned>((rows + kRows - 1) / kRows),
                          .block = kTermThreads,
                          .programmatic = context.programmatic_launch},
                         context.stream, shape, static_cast<const T*>(t.o), static_cast<const T*>(t.dout), t.lse,
                         reinterpret_cast<float*>(terms));
  };
  return shape.dim <= 64 ? launch(std::integral_constant<int, 8>{}) : launch(std::integral_constant<int, 32>{});
}

}  // namespace noisefloor::attention_backward
