// wgrad, naive: one thread per weight, which walks all output pixels. The obvious GPU code, straight from the
// definition. The biases' gradients are two more launches (wgrad_channel_sums.cu).
//
// 256 threads a block, neighbours along the input channels: they read the same dy (one broadcast) and neighbouring x.
//
// Bound: load instructions (two per FMA); of few weights the latency of a thread's loads.
// Requires: nothing beyond grid limits. Numerics: one fp32 FMA chain over all pixels. Source: original.
#include "kernels/convolution/gradient.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    convolution_wgrad_naive(const T* __restrict__ x, const T* __restrict__ dy, const __grid_constant__ Convolution c,
                            float scale, float* __restrict__ dw) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= c.cout * c.k()) return;
  const auto channel = static_cast<int>(item % c.cin);
  const auto tap = static_cast<int>(item / c.cin % (c.y.taps * c.x.taps));
  const T* gradient = dy + item / c.k();
  float sum = 0;
  for (int image = 0; image < c.images; ++image)
    for (int oy = 0; oy < c.y.out; ++oy)
      for (int ox = 0; ox < c.x.out; ++ox, gradient += c.cout) {
        const int iy = input_coordinate(c.y, oy, 0, tap / c.x.taps), ix = input_coordinate(c.x, ox, 0, tap % c.x.taps);
        if (iy < 0 || ix < 0) continue;
        const std::int64_t pixel = (std::int64_t{image} * c.y.in + iy) * c.x.in + ix;
        sum = fmaf(to_float(*gradient), to_float(x[pixel * c.cin + channel]), sum);
      }
  dw[item] = scale * sum;
}

}  // namespace

Status launch_wgrad_naive(const Convolution& c, DType dtype, const Wgrad& t, float scale, void* workspace,
                          const LaunchContext& context) {
  const auto blocks = static_cast<unsigned>((c.cout * c.k() + kThreads - 1) / kThreads);
  const Status status = with_type(dtype, [&]<class T>(T) {
    return launch_kernel("convolution_wgrad_naive", convolution_wgrad_naive<T>, {.grid = blocks, .block = kThreads},
                         context.stream, static_cast<const T*>(t.x), static_cast<const T*>(t.dy), c, scale, t.dw);
  });
  return status.ok() ? launch_channel_sums(c, dtype, t, scale, workspace, context) : status;
}

}  // namespace noisefloor::convolution
