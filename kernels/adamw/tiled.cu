// adamw, tiled: 16 bytes per thread and access, as many parameters a thread as a vector of the copy holds.
//
// Better than naive: a quarter of the memory instructions, and of parameters with a copy of 16 bits ten loads in flight
// a thread.
//
// Tile: 256 threads x 8 parameters (fp32: 4); two float4 of p, m, v, ema and g each, one vector of the copy. No shared
// memory.
//
// Bound: memory traffic, 38 bytes a parameter with ema and a copy of 16 bits; limited by loads in flight.
//
// Requires: a multiple of 8 parameters (fp32: of 4); below 2^31 vectors.
// Numerics: fp32; the copy is rounded once.
// Source: original.
#include "kernels/adamw/adamw.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::adamw {
namespace {

constexpr int kThreads = 256;

// kCount parameters from element `first` on.
template <int kCount>
__device__ __forceinline__ void load(const float* from, std::int64_t first, float (&out)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) load_vector<float>(from + first + i, reinterpret_cast<float(&)[4]>(out[i]));
}
template <int kCount>
__device__ __forceinline__ void store(float* to, std::int64_t first, const float (&in)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) store_vector<float>(to + first + i, reinterpret_cast<const float(&)[4]>(in[i]));
}

template <class T, bool kEma>
__global__ void __launch_bounds__(kThreads)
    tiled_kernel(const __grid_constant__ Tensors t, const Constants constants, std::uint32_t vectors) {
  constexpr int kCount = kVectorLanes<T>;
  ptx::griddepcontrol_wait();
  const std::uint32_t vector = blockIdx.x * kThreads + threadIdx.x;
  if (vector >= vectors) return;
  const std::int64_t first = static_cast<std::int64_t>(vector) * kCount;
  float p[kCount], m[kCount], v[kCount], g[kCount], ema[kCount];
  load(t.g, first, g);
  load(t.p, first, p);
  load(t.m, first, m);
  load(t.v, first, v);
  if constexpr (kEma) load(t.ema, first, ema);
  const float4 numbers = __ldg(reinterpret_cast<const float4*>(t.step));
  const Step step{numbers.x, numbers.y, numbers.z, numbers.w, __ldg(t.grad_scale)};
  ptx::griddepcontrol_launch_dependents();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (!kEma) ema[i] = 0;
    update(constants, step, g[i], p[i], m[i], v[i], ema[i]);
  }
  store(t.p, first, p);
  store(t.m, first, m);
  store(t.v, first, v);
  if constexpr (kEma) store(t.ema, first, ema);
  if (t.copy) store_vector<T>(static_cast<T*>(t.copy) + first, p);
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto vectors = static_cast<std::uint32_t>(p.elements / kVectorLanes<T>);
    const LaunchShape shape{
        .grid = (vectors + kThreads - 1) / kThreads, .block = kThreads, .programmatic = context.programmatic_launch};
    const auto kernel = p.ema ? tiled_kernel<T, true> : tiled_kernel<T, false>;
    return launch_kernel("adamw tiled_kernel", kernel, shape, context.stream, t, constants_of(p), vectors);
  });
}

}  // namespace noisefloor::adamw
