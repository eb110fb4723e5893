// dgrad, naive: one thread per element of dx, which asks every output and tap near its pixel whether they meet there.
// The obvious GPU code, straight from the definition: no phases, no flipped kernel.
//
// 256 threads a block, neighbours along the input channels: they read the same dy (one broadcast) and neighbouring
// weights.
//
// Bound: load instructions (two per FMA). Requires: nothing beyond grid limits.
// Numerics: one fp32 FMA chain. Source: original.
#include "kernels/convolution/gradient.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kThreads = 256;

// The output that reads coordinate `at` of u through tap `tap`, or -1.
__device__ __forceinline__ int output_coordinate(const Axis& forward, int at, int tap) {
  const int from = at - forward.origin - tap;
  if (from < 0 || from % forward.stride != 0) return -1;
  const int out = from / forward.stride;
  return out < forward.out ? out : -1;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    convolution_dgrad_naive(const T* __restrict__ dy, const T* __restrict__ w, const T* __restrict__ residual,
                            const __grid_constant__ Convolution c, const __grid_constant__ DgradFactors factors,
                            T* __restrict__ dx) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= c.input_elements()) return;
  const auto channel = static_cast<int>(item % c.cin);
  const std::int64_t pixel = item / c.cin;
  const auto x = static_cast<int>(pixel % c.x.in), y = static_cast<int>(pixel / c.x.in % c.y.in);
  const T* gradients = dy + pixel / c.x.in / c.y.in * c.phase_pixels() * c.cout;  // of the image
  const std::int64_t row = c.weight_row();
  float sum = 0;
  for (int uy = y * c.y.repeat; uy < (y + 1) * c.y.repeat; ++uy)
    for (int ux = x * c.x.repeat; ux < (x + 1) * c.x.repeat; ++ux)
      for (int tap = 0; tap < c.y.taps * c.x.taps; ++tap) {
        const int oy = output_coordinate(c.y, uy, tap / c.x.taps), ox = output_coordinate(c.x, ux, tap % c.x.taps);
        if (oy < 0 || ox < 0) continue;
        const T* from = gradients + (std::int64_t{oy} * c.x.out + ox) * c.cout;
        const T* weight = w + std::int64_t{tap} * c.cin + channel;
        for (int co = 0; co < c.cout; ++co, weight += row) sum = fmaf(to_float(from[co]), to_float(*weight), sum);
      }
  sum *= factors.scale;
  if (residual != nullptr) sum = fmaf(factors.residual_scale, to_float(residual[item]), sum);
  dx[item] = from_float<T>(sum);
}

}  // namespace

Status launch_dgrad_naive(const Convolution& c, DType dtype, const Dgrad& t, const DgradFactors& factors, void*,
                          const LaunchContext& context) {
  const auto blocks = static_cast<unsigned>((c.input_elements() + kThreads - 1) / kThreads);
  return with_type(dtype, [&]<class T>(T) {
    return launch_kernel("convolution_dgrad_naive", convolution_dgrad_naive<T>, {.grid = blocks, .block = kThreads},
                         context.stream, static_cast<const T*>(t.dy), static_cast<const T*>(t.w),
                         static_cast<const T*>(t.residual), c, factors, static_cast<T*>(t.dx));
  });
}

}  // namespace noisefloor::convolution
