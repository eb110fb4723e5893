// Convolutions, naive: one thread per output element, which walks the taps and the input channels. The first variant,
// and the obvious GPU code that the other variants are compared with element by element.
//
// 256 threads a block, neighbours along the output channels: they read the same input (one broadcast) and weights
// weight_row elements apart. No shared memory. Statistics are a second launch.
//
// Bound: load instructions (two per FMA), at every problem.
//
// Requires: nothing beyond grid limits.
//
// Numerics: one fp32 FMA chain over taps and channels, then over those of a second source.
//
// Source: original.
#include "kernels/convolution/epilogue.cuh"
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kThreads = 256;

// A second source of the sums, as in Operands.
template <class T>
struct Sides {
  const T *side, *side_skip, *w_side;

  // Onto `sum`, of an output.
  __device__ float add(const Convolution& c, std::int64_t pixel, int column, float sum) const {
    const T* weights = w_side + std::int64_t{column} * c.side_channels();
    for (int channel = 0; channel < c.side_channels(); ++channel) {
      const bool first = channel < c.side;
      const T in = first ? side[pixel * c.side + channel] : side_skip[pixel * c.side_skip + channel - c.side];
      sum = fmaf(to_float(in), to_float(weights[channel]), sum);
    }
    return sum;
  }
};

// `norm` as in Operands; not read without kNorm.
template <class T, bool kNorm>
__global__ void __launch_bounds__(kThreads)
    convolution_naive(const T* __restrict__ x, const T* __restrict__ w, const float* __restrict__ norm,
                      const __grid_constant__ Sides<T> sides, const __grid_constant__ Convolution c,
                      const __grid_constant__ Epilogue<T> epilogue) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= c.rows() * c.cout) return;
  const auto column = static_cast<int>(item % c.cout);
  const std::int64_t row = item / c.cout % c.phase_rows();
  const auto phase = static_cast<int>(item / c.cout / c.phase_rows());
  const Pixel at = row_pixel(c, row);
  const T* weights = w + ((c.phase_weights ? std::int64_t{phase} * c.cout : 0) + column) * c.weight_row();
  float sum = 0;
  for (int ty = 0; ty < c.y.taps; ++ty) {
    const int iy = input_coordinate(c.y, at.y, phase / c.x.phases, ty);
    if (iy < 0) continue;
    for (int tx = 0; tx < c.x.taps; ++tx) {
      const int ix = input_coordinate(c.x, at.x, phase % c.x.phases, tx);
      if (ix < 0) continue;
      const T* from = x + ((at.image * c.y.in + iy) * c.x.in + ix) * c.cin;
      const T* tap = weights + std::int64_t{kernel_tap(c, phase, ty, tx)} * c.cin;
      for (int channel = 0; channel < c.cin; ++channel) {
        float in = to_float(from[channel]);
        if constexpr (kNorm) in = normed<T>(c, norm + at.image * 2 * c.cin, channel, in);
        sum = fmaf(in, to_float(tap[channel]), sum);
      }
    }
  }
  const std::int64_t pixel = output_pixel(c, phase, row);
  if (c.side > 0) sum = sides.add(c, pixel, column, sum);
  const Columns<T, 1> output(epilogue, column);
  const float sums[] = {sum};
  output.store(pixel, sums, sums, output.ahead(at.image, epilogue.residual_pixel(pixel)));
}

// One thread per slab and channel: two passes over the slab's rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    convolution_statistics(const T* __restrict__ y, const __grid_constant__ Convolution c, float* __restrict__ mean,
                           float* __restrict__ m2) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= c.images * c.slabs() * c.cout) return;
  const auto column = static_cast<int>(item % c.cout);
  const std::int64_t slab = item / c.cout % c.slabs();
  const std::int64_t image = item / c.cout / c.slabs();
  const auto phase = static_cast<int>(slab / c.phase_slabs());
  const auto count = static_cast<int>(slab_count(c, slab));
  const std::int64_t first = image * c.phase_pixels();
  float sum = 0;
  for (int i = 0; i < count; ++i)
    sum += to_float(y[output_pixel(c, phase, first + slab_row(c, slab, i)) * c.cout + column]);
  const float centre = sum / static_cast<float>(count);
  float squares = 0;
  for (int i = 0; i < count; ++i) {
    const float d = to_float(y[output_pixel(c, phase, first + slab_row(c, slab, i)) * c.cout + column]) - centre;
    squares = fmaf(d, d, squares);
  }
  mean[item] = centre;
  m2[item] = squares;
}

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

}  // namespace

Status launch_statistics(const Convolution& c, DType dtype, const Operands& o, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    return launch_kernel("convolution_statistics", convolution_statistics<T>,
                         {.grid = blocks_for(c.images * c.slabs() * c.cout), .block = kThreads}, context.stream,
                         static_cast<const T*>(o.y), c, o.mean, o.m2);
  });
}

Status launch_naive(const Convolution& c, DType dtype, const Operands& o, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const Status status = with_type(dtype, [&]<class T>(T) {
    const auto* w_side = static_cast<const T*>(o.w_side);
    const Sides<T> sides{static_cast<const T*>(o.side), static_cast<const T*>(o.side_skip), w_side};
    const auto kernel = c.norm == Norm::none ? convolution_naive<T, false> : convolution_naive<T, true>;
    return launch_kernel("convolution_naive", kernel, {.grid = blocks_for(c.rows() * c.cout), .block = kThreads},
                         context.stream, static_cast<const T*>(o.x), static_cast<const T*>(o.w), o.norm, sides, c,
                         Epilogue<T>(c, o));
  });
  return status.ok() && c.stats ? launch_statistics(c, dtype, o, context) : status;
}

}  // namespace noisefloor::convolution
