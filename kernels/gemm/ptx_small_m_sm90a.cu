// gemm for 1 to 8 rows of A (time embeddings at small batches): a dot product per row of B, bound by reading B once. A
// warp owns a column of D: its lanes read that row of B 16 bytes at a time past L1 (it is used once), multiply with the
// rows of A (L1 and L2 hold them), and add up by a butterfly; lane i finishes row i. Bias, shift and residual are
// loaded before the products, so that everything arrives in one round trip.
//
// Better than ptx_sm90a there: a 64-row tile would be 1/64 to 1/8 full, and its pipeline takes longer to start than the
// whole product takes here.
//
// Requires: bf16 or fp16, m of at most 8, k a multiple of 8, 16-byte aligned tensors. Honours programmatic dependent
// launch.
// Bound: bytes of B at m=1, n=1536, k=768; expected limiter: the latency of launch and DRAM.
// Numerics: fp32 FMA chains of k / 32 terms, then 5 adds, always in the same order.
// Source: original.
#include <cuda_runtime.h>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/launchers.h"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::gemm {
namespace {

constexpr int kWarps = 4;   // of a block
constexpr int kUnroll = 5;  // 16-byte loads of B in flight per lane: 20 registers, and 20 per row of A for up to 2 rows
constexpr int kLanes = 8;   // elements in 16 bytes
constexpr int kWarpStep = 32 * kLanes;

// sums[i] += the dot products of rows of A with row `row` of B, over this lane's share of k.
template <class T, int kRows>
__device__ __forceinline__ void dot(const T* __restrict__ a, const T* __restrict__ b, std::int64_t k,
                                    float (&sums)[kRows]) {
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % 32) * kLanes;
  for (std::int64_t begin = first; begin < k; begin += kUnroll * kWarpStep) {
    uint4 weights[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t column = begin + u * kWarpStep;
      weights[u] = make_uint4(0, 0, 0, 0);
      if (column < k) weights[u] = load_16_bytes<CacheHint::read_only_once>(b + column);
    }
    // All rows of A are loaded before the first product as well: with few rows everything arrives in one round trip.
    uint4 inputs[kRows <= 2 ? kUnroll : 1][kRows];
    if constexpr (kRows <= 2) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const std::int64_t column = begin + u * kWarpStep;
          inputs[u][i] = make_uint4(0, 0, 0, 0);
          if (column < k) inputs[u][i] = load_16_bytes<CacheHint::read_only>(a + i * k + column);
        }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t column = begin + u * kWarpStep;
      if (column >= k) break;
      float w[kLanes];
      unpack_vector<T>(weights[u], w);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        float x[kLanes];
        if constexpr (kRows <= 2)
          unpack_vector<T>(inputs[u][i], x);
        else
          load_vector<T, CacheHint::read_only>(a + i * k + column, x);
#pragma unroll
        for (int e = 0; e < kLanes; ++e) sums[i] = fmaf(x[e], w[e], sums[i]);
      }
    }
  }
}

// A butterfly: every lane ends with the warp's sum.
template <int kRows>
__device__ __forceinline__ void reduce_warp(float (&sums)[kRows]) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
#pragma unroll
    for (int i = 0; i < kRows; ++i) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], offset);
}

template <class T, int kRows>
__global__ void __launch_bounds__(kWarps * 32) gemm_small_m(const T* __restrict__ a, const T* __restrict__ b,
                                                            T* __restrict__ d, std::int64_t k, Epilogue<T> epilogue) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (column >= epilogue.columns) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // What the epilogue needs travels at the same time as B. (product::Columns would take ten registers more.)
  float bias = 0;
  float gate_bias = 0;
  float residual = 0;
  if (epilogue.bias) bias = to_float(epilogue.bias[column]);
  if (epilogue.bias && epilogue.gated) gate_bias = to_float(epilogue.bias[epilogue.columns + column]);
  if (epilogue.image_shift && lane < kRows) bias += to_float(epilogue.shift_of(lane)[column]);
  if (epilogue.residual && lane < kRows) residual = to_float(epilogue.residual[lane * epilogue.columns + column]);

  float sums[kRows] = {};
  float gates[kRows] = {};
  dot<T, kRows>(a, b + column * k, k, sums);
  if (epilogue.gated) dot<T, kRows>(a, b + (epilogue.columns + column) * k, k, gates);
  reduce_warp(sums);
  if (epilogue.gated) reduce_warp(gates);

  // Lane i finishes and writes row i.
  float sum = 0;
  float gate_sum = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (lane == i) sum = sums[i], gate_sum = gates[i];
  }
  if (lane >= kRows) return;
  float value[] = {fmaf(epilogue.scale, sum, bias)};
  if (epilogue.gated)
    value[0] = epilogue.gate(value[0], fmaf(epilogue.scale, gate_sum, gate_bias));
  else
    epilogue.activate(value);
  d[epilogue.at(lane, column)] = from_float<T>(value[0] + residual);
}

template <class T, int kRows>
Status launch_rows(const Problem& problem, const Tensors& tensors, const LaunchContext& context) {
  const LaunchShape shape{.grid = static_cast<unsigned>((problem.n + kWarps - 1) / kWarps),
                          .block = kWarps * 32,
                          .programmatic = context.programmatic_launch};
  return launch_kernel("gemm_small_m", gemm_small_m<T, kRows>, shape, context.stream, static_cast<const T*>(tensors.a),
                       static_cast<const T*>(tensors.b), static_cast<T*>(tensors.d), problem.k,
                       Epilogue<T>(problem, tensors));
}

template <class T, int... kRow>
Status launch_any(const Problem& problem, const Tensors& tensors, const LaunchContext& context,
                  std::integer_sequence<int, kRow...>) {
  Status status = failure(StatusCode::unsupported_problem, "needs m <= 8");
  (void)((problem.m == kRow + 1 ? (status = launch_rows<T, kRow + 1>(problem, tensors, context), true) : false) || ...);
  return status;
}

}  // namespace

Status launch_ptx_small_m_sm90a(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                                const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  return with_half_type(dtype, [&](auto type) {
    return launch_any<decltype(type)>(problem, tensors, context,
                                      std::make_integer_sequence<int, static_cast<int>(kSmallM)>{});
  });
}

}  // namespace noisefloor::gemm
