// q_sample, naive: one thread per element, as the formula reads.
//
// Threads: 256, one element each; no shared memory. A 64-bit division an element, and drawn noise costs a whole Philox
// block per element, of which one number in four is used.
//
// Bound: memory traffic where noise is given; integer issue where it is drawn.
//
// Requires: nothing.
// Numerics: fp32, one rounding at the end.
// Source: original.
#include "kernels/core/cuda_status.h"
#include "kernels/core/noise_stream.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::q_sample {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    naive_kernel(const Tensors t, const NoiseStream stream, std::int64_t total, std::int64_t elements) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const std::int64_t image = i / elements;
  const float z = t.noise ? to_float(static_cast<const T*>(t.noise)[i])
                          : noise_element(stream, static_cast<std::uint64_t>(image),
                                          static_cast<std::uint32_t>(i - image * elements));
  const float value = t.levels[2 * image] * to_float(static_cast<const T*>(t.x0)[i]) + t.levels[2 * image + 1] * z;
  static_cast<T*>(t.x_t)[i] = from_float<T>(value);
  if (t.noise_out) static_cast<T*>(t.noise_out)[i] = from_float<T>(z);
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>((p.total() + kThreads - 1) / kThreads);  // at most 2^25
    return launch_kernel("q_sample naive_kernel", naive_kernel<T>, {.grid = blocks, .block = kThreads}, context.stream,
                         t, noise_stream(p), p.total(), p.elements);
  });
}

}  // namespace noisefloor::q_sample
