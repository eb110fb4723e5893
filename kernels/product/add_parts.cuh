// The second launch of a product whose k falls into parts, which leave sums of their own in fp32: adds them in their
// order. Device code and its launch.
#pragma once

#include <cstdint>

#include "kernels/core/cuda_status.h"
#include "kernels/device/launch.cuh"
#include "kernels/product/epilogue.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::product {
namespace {  // each file that includes this is compiled for architectures of its own

constexpr int kAddThreads = 256;

// `sums`: [parts][outputs], and behind them [parts][rows], the sums of A's rows; kSums neighbours a thread. `row_sums`:
// null: none.
template <int kSums>
__global__ void __launch_bounds__(kAddThreads)
    add_parts(const float* __restrict__ sums, int parts, std::int64_t outputs, int rows, float* __restrict__ d,
              float* __restrict__ row_sums) {
  using Sums = Run<float, kSums>;
  ptx::griddepcontrol_wait();  // launched while the parts are still being made
  const std::int64_t item = (std::int64_t{blockIdx.x} * kAddThreads + threadIdx.x) * kSums;
  const bool of_row = item >= outputs;
  const std::int64_t at = of_row ? item - outputs : item, part = of_row ? rows : outputs;
  if (of_row && (row_sums == nullptr || at >= rows)) return;
  const float* from = sums + (of_row ? parts * outputs : 0) + at;
  Sums sum{};
#pragma unroll 4
  for (int i = 0; i < parts; ++i, from += part) {
    const auto more = *reinterpret_cast<const Sums*>(from);
#pragma unroll
    for (int j = 0; j < kSums; ++j) sum.v[j] += more.v[j];
  }
  *reinterpret_cast<Sums*>((of_row ? row_sums : d) + at) = sum;
}

inline Status launch_add_parts(const float* sums, int parts, std::int64_t outputs, std::int64_t rows, float* d,
                               float* row_sums, const LaunchContext& context) {
  const bool fours = outputs % 4 == 0 && rows % 4 == 0;
  const std::int64_t items = (outputs + rows) / (fours ? 4 : 1);
  const LaunchShape shape{.grid = static_cast<unsigned>((items + kAddThreads - 1) / kAddThreads),
                          .block = kAddThreads,
                          .programmatic = context.device->compute_capability >= 90};
  return launch_kernel("add_parts", fours ? add_parts<4> : add_parts<1>, shape, context.stream, sums, parts, outputs,
                       static_cast<int>(rows), d, row_sums);
}

// launch(d, row_sums) makes them, of one part where they belong.
template <class Launch>
Status launch_in_parts(float* sums, int parts, std::int64_t outputs, std::int64_t rows, float* d, float* row_sums,
                       const LaunchContext& context, const Launch& launch) {
  if (parts == 1) return launch(d, row_sums);
  const Status status = launch(sums, row_sums == nullptr ? nullptr : sums + parts * outputs);
  return status.ok() ? launch_add_parts(sums, parts, outputs, rows, d, row_sums, context) : status;
}

}  // namespace
}  // namespace noisefloor::product
