// sampler_step, naive: one thread per element, as the formula reads.
//
// Tile: 256 threads, one element each; no shared memory. Each warp's access is 64 (16-bit types) or 128 bytes wide, and
// drawn noise costs a whole Philox block per element, of which one number in four is used. Registers: 32.
//
// Bound: memory traffic where noise is given; integer issue where it is drawn.
//
// Requires: nothing.
// Numerics: fp32, one rounding at the end.
// Source: original.
#include "kernels/device/launch.cuh"
#include "kernels/sampler_step/arguments.cuh"

namespace noisefloor::sampler_step {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) naive_kernel(const Arguments<T> a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.total) return;
  const Coefficients c = *a.row;
  const float x = to_float(a.x[i]);
  float x0 = c.model_x * x + c.model * to_float(a.model[i]);
  if (a.model_cond) x0 += c.model_cond * to_float(a.model_cond[i]);
  x0 = clamp_symmetric(x0, c.limit);
  float x_next = c.x * x + c.x0 * x0;
  if (a.history) x_next += c.history * to_float(a.history[i]);
  if (a.noise) x_next += c.noise * to_float(a.noise[i]);
  if (a.previous) x_next += c.previous * to_float(a.previous[i]);
  if (a.drawn) {
    const std::int64_t image = i / a.elements;
    const auto within = static_cast<std::uint32_t>(i - image * a.elements);
    x_next += c.noise * noise_element(a.stream, static_cast<std::uint64_t>(image), within);
  }
  a.x_next[i] = from_float<T>(x_next);
  if (a.history_out) a.history_out[i] = from_float<T>(c.history_x * x + c.history_x0 * x0);
}

}  // namespace

Status launch_naive(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                    const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto arguments = make_arguments<T>(problem, tensors);
    const auto blocks = static_cast<unsigned>((problem.total() + kThreads - 1) / kThreads);  // at most 2^25
    return launch_kernel("sampler_step naive_kernel", naive_kernel<T>, {.grid = blocks, .block = kThreads},
                         context.stream, arguments);
  });
}

}  // namespace noisefloor::sampler_step
