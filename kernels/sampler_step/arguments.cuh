// What the GPU variants share: a kernel's arguments, and the update of a few elements held in registers.
#pragma once

#include "kernels/core/cuda_status.h"
#include "kernels/core/noise_stream.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/vector.cuh"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {

// Null pointers for tensors that the problem does not have: every thread branches the same way on them.
template <class T>
struct Arguments {
  const T* x;
  const T* model;
  const T* model_cond;
  const T* noise;
  const T* history;
  const T* previous;
  const Coefficients* row;
  T* x_next;
  T* history_out;
  std::int64_t total;      // elements of the batch
  std::uint32_t elements;  // of an image
  bool drawn;
  NoiseStream stream;
};

template <class T>
Arguments<T> make_arguments(const Problem& problem, const Tensors& tensors) {
  const auto in = [](const void* pointer) { return static_cast<const T*>(pointer); };
  Arguments<T> a{};
  a.x = in(tensors.x);
  a.model = in(tensors.model_output);
  a.model_cond = problem.guided() ? in(tensors.model_output) + problem.total() : nullptr;
  a.noise = in(tensors.noise);
  a.history = in(tensors.history);
  a.previous = in(tensors.previous_frame);
  a.row = reinterpret_cast<const Coefficients*>(tensors.coefficients) + problem.step;
  a.x_next = static_cast<T*>(tensors.x_next);
  a.history_out = static_cast<T*>(tensors.history_out);
  a.total = problem.total();
  a.elements = static_cast<std::uint32_t>(problem.elements);
  a.drawn = problem.noise == Noise::drawn;
  a.stream = noise_stream(problem);
  return a;
}

__device__ __forceinline__ Coefficients load_coefficients(const Coefficients* row) {
  const auto* vectors = reinterpret_cast<const float4*>(row);
  const float4 a = __ldg(vectors), b = __ldg(vectors + 1), c = __ldg(vectors + 2);
  return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, c.x, c.y, c.z, c.w};
}

// A NaN passes through, which fmin and fmax would not let it.
__device__ __forceinline__ float clamp_symmetric(float value, float limit) {
#if __CUDA_ARCH__ >= 800
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(limit));
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(-limit));
  return value;
#else
  value = value > limit ? limit : value;
  return value < -limit ? -limit : value;
#endif
}

// kLanes consecutive elements: x and the model's output come in, x0 and x_next go out.
template <int kLanes>
struct Lanes {
  float x[kLanes], x0[kLanes], x_next[kLanes];

  __device__ __forceinline__ void predict(const Coefficients& c, const float (&model)[kLanes]) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x0[i] = c.model_x * x[i] + c.model * model[i];
  }
  __device__ __forceinline__ void guide(const Coefficients& c, const float (&model_cond)[kLanes]) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x0[i] += c.model_cond * model_cond[i];
  }
  __device__ __forceinline__ void advance(const Coefficients& c) {
    if (c.limit < __int_as_float(0x7f800000)) {  // every thread alike
#pragma unroll
      for (int i = 0; i < kLanes; ++i) x0[i] = clamp_symmetric(x0[i], c.limit);
    }
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x_next[i] = c.x * x[i] + c.x0 * x0[i];
  }
  __device__ __forceinline__ void add(float scale, const float (&term)[kLanes]) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x_next[i] += scale * term[i];
  }
  // Overwrites x, which is needed no more.
  __device__ __forceinline__ void keep(const Coefficients& c) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x[i] = c.history_x * x[i] + c.history_x0 * x0[i];
  }
};

}  // namespace noisefloor::sampler_step
