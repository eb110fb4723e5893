// layernorm, naive: one block per row, three passes over it in memory: mean, variance, output.
//
// Threads: 128; thread i takes channels i, i + 128, ... Shared memory: one float per thread for the sums.
//
// Bound: memory, by 2- to 4-byte accesses, each row read three times (from L1 or L2 after the first), and by the two
// reductions that nothing overlaps.
//
// Requires: nothing.
// Numerics: fp32, two passes (deviations from the mean are squared).
// Source: original.
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/layernorm/layernorm.h"

namespace noisefloor::layernorm {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads) naive_kernel(const Problem p, const Tensors t) {
  __shared__ float shared[kThreads];
  const std::int64_t first = blockIdx.x * p.channels;
  const std::int64_t image = blockIdx.x / (p.rows / p.images) * p.channels;
  const T* x = static_cast<const T*>(t.x) + first;
  const T* residual = t.residual == nullptr ? nullptr : static_cast<const T*>(t.residual) + first;
  const auto sum_at = [&](std::int64_t c) { return to_float(x[c]) + (residual ? to_float(residual[c]) : 0.0f); };

  float sum = 0;
  for (std::int64_t c = threadIdx.x; c < p.channels; c += kThreads) sum += sum_at(c);
  const float mean = block_sum<kThreads>(sum, shared) / static_cast<float>(p.channels);
  float squares = 0;
  for (std::int64_t c = threadIdx.x; c < p.channels; c += kThreads) {
    const float deviation = sum_at(c) - mean;
    squares += deviation * deviation;
  }
  const float variance = block_sum<kThreads>(squares, shared) / static_cast<float>(p.channels);
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(p.eps));
  const auto parameter = [](const void* base, std::int64_t i) { return to_float(static_cast<const T*>(base)[i]); };
  for (std::int64_t c = threadIdx.x; c < p.channels; c += kThreads) {
    const float s = sum_at(c);
    float value = (s - mean) * rstd;
    if (p.affine) value = value * parameter(t.gamma, c) + parameter(t.beta, c);
    if (t.scale) value = value * (1.0f + parameter(t.scale, image + c)) + parameter(t.shift, image + c);
    if (t.sum) static_cast<T*>(t.sum)[first + c] = from_float<T>(s);
    static_cast<T*>(t.y)[first + c] = from_float<T>(value);
  }
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    return launch_kernel("layernorm naive_kernel", naive_kernel<T>,
                         {.grid = static_cast<unsigned>(p.rows), .block = kThreads}, context.stream, p, t);
  });
}

}  // namespace noisefloor::layernorm
