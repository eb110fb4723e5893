// adamw, naive: one thread per parameter, as the formulas read.
//
// Threads: 256, one parameter each; no shared memory.
//
// Bound: memory traffic by 2- to 4-byte accesses, five loads in flight a thread.
//
// Requires: nothing.
// Numerics: fp32; the copy is rounded once.
// Source: original.
#include "kernels/adamw/adamw.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::adamw {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    naive_kernel(const Tensors t, const Constants constants, std::int64_t elements) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  const Step step{t.step[0], t.step[1], t.step[2], t.step[3], t.grad_scale[0]};
  float p = t.p[i], m = t.m[i], v = t.v[i], ema = t.ema ? t.ema[i] : 0;
  update(constants, step, t.g[i], p, m, v, ema);
  t.p[i] = p;
  t.m[i] = m;
  t.v[i] = v;
  if (t.ema) t.ema[i] = ema;
  if (t.copy) static_cast<T*>(t.copy)[i] = from_float<T>(p);
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>((p.elements + kThreads - 1) / kThreads);  // at most 2^25
    return launch_kernel("adamw naive_kernel", naive_kernel<T>, {.grid = blocks, .block = kThreads}, context.stream, t,
                         constants_of(p), p.elements);
  });
}

}  // namespace noisefloor::adamw
