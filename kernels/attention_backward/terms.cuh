// What the tensor-core variants of attention_backward share: their launcher, the passes, and the first launch, which
// turns o, dout and lse into two terms of each query, so that a weight is p = exp2(c s - log2_sum), its logit's
// gradient p (dout v - delta) by the scale.
#pragma once

#include <cmath>

#include "kernels/attention_backward/attention_backward.h"
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
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
inline constexpr int kTermThreads = 256, kTermQueries = 4;  // of a group of lanes, all of them loaded at once

template <class T, int kLanes>
static __global__ void __launch_bounds__(kTermThreads)
    attention_backward_terms(const Shape shape, const T* __restrict__ o, const T* __restrict__ dout,
                             const float* __restrict__ lse, float* __restrict__ terms) {
  constexpr int kGroups = kTermThreads / kLanes;
  const auto heads = static_cast<unsigned>(shape.heads), length = static_cast<unsigned>(term_rows(shape.seq_q));
  const unsigned first = blockIdx.x * (kTermQueries * kGroups) + threadIdx.x / kLanes;
  const int d = static_cast<int>(threadIdx.x) % kLanes * 8;
  struct Row {
    unsigned head, query, outer;
    bool exists;
  };
  const auto row_of = [&](int i) {
    const unsigned row = first + static_cast<unsigned>(i * kGroups);
    const Row at{row % heads, row / heads % length, row / heads / length, false};
    return Row{at.head, at.query, at.outer, at.outer < shape.outer && at.query < shape.seq_q};
  };
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  uint4 x[kTermQueries], y[kTermQueries];
#pragma unroll
  for (int i = 0; i < kTermQueries; ++i) {
    const Row row = row_of(i);
    const std::int64_t at = shape.out.at(row.outer, 0, row.query, row.head) + d;
    const bool reads = row.exists && d < shape.dim;
    x[i] = reads ? load_16_bytes<CacheHint::read_only>(o + at) : uint4{};
    y[i] = reads ? load_16_bytes<CacheHint::read_only>(dout + at) : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kTermQueries; ++i) {
    float a[8], b[8], sum = 0;
    unpack_vector<T>(x[i], a);
    unpack_vector<T>(y[i], b);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(a[j], b[j], sum);
    sum = lane_sum<kLanes>(sum);
    const Row row = row_of(i);
    if (row.outer >= shape.outer || d != 0) continue;
    const std::int64_t sequence = std::int64_t{row.outer} * heads + row.head;
    float* const pair = terms + 2 * (sequence * length + row.query / 2 * 2) + row.query % 2;
    pair[0] = row.exists ? lse[sequence * shape.seq_q + row.query] * attention::kLog2E : INFINITY;
    pair[2] = sum;
  }
}

template <class T>
Status launch_terms(const Shape& shape, const Tensors& t, float4* terms, const LaunchContext& context) {
  const std::int64_t rows = shape.outer * shape.heads * term_rows(shape.seq_q);
  const auto launch = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
    constexpr int kRows = kTermQueries * kTermThreads / kLanes;
    return launch_kernel("attention_backward_terms", attention_backward_terms<T, kLanes>,
                         {.grid = static_cast<unsigned>((rows + kRows - 1) / kRows),
                          .block = kTermThreads,
                          .programmatic = context.programmatic_launch},
                         context.stream, shape, static_cast<const T*>(t.o), static_cast<const T*>(t.dout), t.lse,
                         reinterpret_cast<float*>(terms));
  };
  if (shape.dim <= 64) return launch(std::integral_constant<int, 8>{});
  if (shape.dim <= 128) return launch(std::integral_constant<int, 16>{});
  return launch(std::integral_constant<int, 32>{});
}

// The launcher of both variants: the terms, then the passes of the least of kDims that a head fits, the queries' last.
// launch<T, kDim, kPass>(shape, terms) is one of these.
template <int... kDims, class Launch>
Status launch_passes(const Problem& problem, DType dtype, const Tensors& t, const Scratch& scratch,
                     const LaunchContext& context, const Launch& launch) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  auto* const terms = static_cast<float4*>(scratch.workspace);
  return with_half_type(dtype, [&]<class T>(T) {
    const Shape shape = problem.shape();
    Status status = launch_terms<T>(shape, t, terms, context);
    const auto passes = [&]<int kDim, Pass... kPasses>() {
      ((status = status.ok() ? launch.template operator()<T, kDim, kPasses>(shape, terms) : status), ...);
      return true;
    };
    const auto fits = [&]<int kDim>() {
      if (shape.dim > kDim) return false;
      if constexpr (kDim <= 128)
        return passes.template operator()<kDim, Pass::keys_and_values, Pass::queries>();
      else
        return passes.template operator()<kDim, Pass::values, Pass::keys, Pass::queries>();
    };
    static_cast<void>((fits.template operator()<kDims>() || ...));
    return status;
  });
}

}  // namespace noisefloor::attention_backward
