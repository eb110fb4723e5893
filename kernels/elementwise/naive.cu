// elementwise, naive: one thread per element of y, as the formula reads.
//
// Threads: 256, one element each; no shared memory.
//
// Bound: memory, by 2- to 4-byte accesses; where the layout changes, the reads of a warp lie in 32 sectors, of which
// caches save what they can; broadcast costs two integer divisions an element.
//
// Requires: nothing.
// Numerics: fp32, one rounding at the end; layouts move bits.
// Source: original.
#include "kernels/device/activations.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {
namespace {

constexpr int kThreads = 256;

template <class T>
__device__ float value_of(const Problem& p, const Tensors& t, std::int64_t i) {
  const auto at = [](const void* base, std::int64_t index) { return to_float(static_cast<const T*>(base)[index]); };
  switch (p.op) {
    case Operation::silu_fma: {
      const std::int64_t place = p.broadcast ? i / (p.hw * p.channels) * p.channels + i % p.channels : i;
      return silu<T>(at(t.a, place) + at(t.b, i) * at(t.c, place));
    }
    case Operation::add:
      return (at(t.a, i) + at(t.b, i)) * static_cast<float>(p.scale);
    case Operation::geglu: {
      const std::int64_t place = i / p.channels * 2 * p.channels + i % p.channels;
      return at(t.a, place) * gelu<T>(at(t.a, place + p.channels));
    }
    case Operation::relu:
      return relu(at(t.a, i));
    case Operation::silu:
      return silu<T>(at(t.a, i));
    case Operation::nchw_to_nhwc: {
      const std::int64_t pixel = i / p.channels;  // of all images
      return at(t.a, (pixel / p.hw * p.channels + i % p.channels) * p.hw + pixel % p.hw);
    }
    case Operation::nhwc_to_nchw: {
      const std::int64_t plane = i / p.hw;  // of all images
      return at(t.a, (plane / p.channels * p.hw + i % p.hw) * p.channels + plane % p.channels);
    }
    default:
      return at(t.a, i);
  }
}

template <class T, class U>
__global__ void __launch_bounds__(kThreads) naive_kernel(const Problem p, const Tensors t, std::int64_t total) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < total) static_cast<U*>(t.y)[i] = from_float<U>(value_of<T>(p, t, i));
}

// Element i of dy, or of x of scale.
template <class T>
__global__ void __launch_bounds__(kThreads)
    naive_gradient_kernel(const Problem p, const Tensors t, std::int64_t total) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const auto* const x = static_cast<const T*>(t.a);
  auto* const y = static_cast<T*>(t.y);
  const float dy = p.op == Operation::scale ? static_cast<float>(p.scale) : to_float(static_cast<const T*>(t.b)[i]);
  if (p.op == Operation::geglu_backward) {
    const std::int64_t value = i / p.channels * 2 * p.channels + i % p.channels, gate = value + p.channels;
    y[value] = from_float<T>(dy * gelu<T>(to_float(x[gate])));
    y[gate] = from_float<T>(dy * to_float(x[value]) * gelu_slope<T>(to_float(x[gate])));
    return;
  }
  float v = to_float(x[i]);
  if (p.op == Operation::relu_backward) v = v <= 0 ? 0.0f : dy;
  if (p.op == Operation::silu_backward) v = dy * silu_slope<T>(v);
  if (p.op == Operation::gelu_backward) v = dy * gelu_slope<T>(v);
  if (p.op == Operation::scale) v = dy * v;
  y[i] = from_float<T>(v);
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  const auto blocks = static_cast<unsigned>((p.total() + kThreads - 1) / kThreads);  // at most 2^25
  if (p.is_backward() || p.op == Operation::scale)
    return with_type(dtype, [&](auto type) {
      return launch_kernel("elementwise naive_gradient_kernel", naive_gradient_kernel<decltype(type)>,
                           {.grid = blocks, .block = kThreads}, context.stream, p, t, p.total());
    });
  return with_type(dtype, [&](auto from) {
    return with_type(p.output_dtype(dtype), [&](auto to) {
      return launch_kernel("elementwise naive_kernel", naive_kernel<decltype(from), decltype(to)>,
                           {.grid = blocks, .block = kThreads}, context.stream, p, t, p.total());
    });
  });
}

}  // namespace noisefloor::elementwise
