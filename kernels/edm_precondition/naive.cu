// edm_precondition, naive: one thread per element, as the formulas read.
//
// Threads: 256, one element each; no shared memory. A 64-bit division, a root and up to two fp32 divisions an element.
//
// Bound: memory traffic by 2- to 4-byte accesses, and issue slots beside it.
//
// Requires: nothing.
// Numerics: fp32, one rounding at the end.
// Source: original.
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    naive_kernel(const Problem p, const Tensors t, std::int64_t total, float sigma_data) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const std::int64_t image = i / p.elements;
  const Scales scale = scales(p.side, t.sigma[image], sigma_data);
  float value = scale.x * to_float(static_cast<const T*>(t.x)[i]);
  if (t.f) value += scale.f * to_float(static_cast<const T*>(t.f)[i]);
  static_cast<T*>(t.y)[i] = from_float<T>(value);
  if (t.c_noise && i == image * p.elements) t.c_noise[image] = logf(t.sigma[image]) / 4;
}

// side=gradient.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const T* dd, const float* sigma, T* df, std::int64_t elements, std::int64_t total,
                    float sigma_data) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  df[i] = from_float<T>(scales(Side::output, sigma[i / elements], sigma_data).f * to_float(dd[i]));
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>((p.total() + kThreads - 1) / kThreads);  // at most 2^25
    const LaunchShape shape{.grid = blocks, .block = kThreads};
    const auto sigma_data = static_cast<float>(p.sigma_data);
    if (p.side == Side::gradient)
      return launch_kernel("edm_precondition gradient_kernel", gradient_kernel<T>, shape, context.stream,
                           static_cast<const T*>(t.x), t.sigma, static_cast<T*>(t.y), p.elements, p.total(),
                           sigma_data);
    return launch_kernel("edm_precondition naive_kernel", naive_kernel<T>, shape, context.stream, p, t, p.total(),
                         sigma_data);
  });
}

}  // namespace noisefloor::edm_precondition
