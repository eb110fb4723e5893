// resample, naive: one thread per element of y, which finds its place by integer divisions.
//
// Threads: 256, one element each; no shared memory.
//
// Bound: memory, by 2- to 4-byte accesses, and the issue slots of three 64-bit divisions an element.
//
// Requires: nothing.
// Numerics: the mean in fp32, one rounding at the end; all else moves bits.
// Source: original.
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/resample/resample.h"

namespace noisefloor::resample {
namespace {

constexpr int kThreads = 256;

// What a forward pass depends on, without the fields and tensors of a backward pass, so that its kernel's arguments and
// machine code stay as they were.
struct Places {
  Operation op;
  std::int64_t n, h, w, channels, skip_channels;
};
struct Pointers {
  const void *x, *skip;
  void* y;
};
Places places_of(const Problem& p) {
  return {p.op, p.n, p.h, p.w, p.channels, p.skip_channels};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    naive_kernel(const Places p, const Pointers t, std::int64_t total, std::int64_t out_w, std::int64_t out_channels) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const std::int64_t channel = i % out_channels, pixel = i / out_channels;
  const std::int64_t column = pixel % out_w, row = pixel / out_w;  // row: of all images
  const T* x = static_cast<const T*>(t.x);
  const auto at = [&](std::int64_t r, std::int64_t c) { return x[(r * p.w + c) * p.channels + channel]; };
  T value;
  if (p.op == Operation::nearest_up2) {
    value = at(row / 2, column / 2);
  } else if (p.op == Operation::average_down2) {
    float sum = to_float(at(2 * row, 2 * column)) + to_float(at(2 * row, 2 * column + 1));
    sum += to_float(at(2 * row + 1, 2 * column)) + to_float(at(2 * row + 1, 2 * column + 1));
    value = from_float<T>(0.25f * sum);
  } else if (channel < p.channels) {
    value = at(row, column);
  } else {
    value = static_cast<const T*>(t.skip)[pixel * p.skip_channels + channel - p.channels];
  }
  static_cast<T*>(t.y)[i] = value;
}

// The operations of a backward pass that no forward pass has: with a scale, or split (`i`: an element of x).
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const Places p, const T* x, T* y, T* skip, std::int64_t total, std::int64_t out_w, float scale) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const std::int64_t out_channels = p.channels + p.skip_channels;
  const std::int64_t channel = i % out_channels, pixel = i / out_channels;
  const std::int64_t column = pixel % out_w, row = pixel / out_w;  // row: of all images
  const auto at = [&](std::int64_t r, std::int64_t c) { return to_float(x[(r * p.w + c) * p.channels + channel]); };
  if (p.op == Operation::nearest_up2) {
    y[i] = from_float<T>(scale * at(row / 2, column / 2));
  } else if (p.op == Operation::average_down2) {
    const float sum = (at(2 * row, 2 * column) + at(2 * row, 2 * column + 1)) +
                      (at(2 * row + 1, 2 * column) + at(2 * row + 1, 2 * column + 1));
    y[i] = from_float<T>(0.25f * scale * sum);
  } else if (channel < p.channels) {
    y[pixel * p.channels + channel] = x[i];
  } else {
    skip[pixel * p.skip_channels + channel - p.channels] = x[i];
  }
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>((p.total() + kThreads - 1) / kThreads);  // at most 2^25
    const LaunchShape shape{.grid = blocks, .block = kThreads};
    if (p.op == Operation::split || p.scale != 1)
      return launch_kernel("resample backward_kernel", backward_kernel<T>, shape, context.stream, places_of(p),
                           static_cast<const T*>(t.x), static_cast<T*>(t.y), static_cast<T*>(t.skip_out), p.total(),
                           p.out_w(), static_cast<float>(p.scale));
    return launch_kernel("resample naive_kernel", naive_kernel<T>, shape, context.stream, places_of(p),
                         Pointers{t.x, t.skip, t.y}, p.total(), p.out_w(), p.out_channels());
  });
}

}  // namespace noisefloor::resample
