// What the GPU rungs of the convolutions do to a finished fp32 sum, and where it goes. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/device/activations.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/product/epilogue.cuh"

namespace noisefloor::convolution {

using product::Run;

// Passed by value to a kernel. `act` is the same for every thread, so the switch does not diverge.
template <class T>
struct Epilogue {
  const T *bias, *scale, *shift, *image_shift, *residual;  // null: none
  T* y;
  int cout;
  Activation act;
  float gain;
  int repeated_width;  // of the output, where the residual has half of it; else 0

  Epilogue(const Convolution& c, const Operands& o)
      : bias(c.bias ? static_cast<const T*>(o.bias) : nullptr),
        scale(c.affine ? static_cast<const T*>(o.scale) : nullptr),
        shift(c.affine ? static_cast<const T*>(o.shift) : nullptr),
        image_shift(c.image_shift ? static_cast<const T*>(o.image_shift) : nullptr),
        residual(c.residual ? static_cast<const T*>(o.residual) : nullptr),
        y(static_cast<T*>(o.y)),
        cout(c.cout),
        act(c.act),
        gain(c.gain),
        repeated_width(c.residual_upsample ? c.x.out : 0) {}

  // bias, scale and shift of a channel as one multiply-add of its sums.
  __device__ __forceinline__ void channel(int column, float& mul, float& add) const {
    mul = scale ? to_float(scale[column]) : 1.0f;
    add = bias ? to_float(bias[column]) * mul : 0.0f;
    if (shift) add += to_float(shift[column]);
  }
  __device__ __forceinline__ float activate(float v) const {
    if (act == Activation::silu) return silu<T>(v);
    if (act == Activation::relu) return relu(v);
    return v;
  }
  // The residual's pixel for output pixel `at`.
  __device__ __forceinline__ std::int64_t residual_pixel(std::int64_t at) const {
    return repeated_width == 0 ? at : repeated_pixel(repeated_width, at);
  }
  // One output: `at` is its pixel over all images.
  __device__ __forceinline__ void store(float sum, std::int64_t image, std::int64_t at, int column) const {
    float mul, add;
    channel(column, mul, add);
    float v = fmaf(sum, mul, add);
    if (image_shift) v += to_float(image_shift[image * cout + column]);
    v = activate(v);
    if (residual) v += to_float(residual[residual_pixel(at) * cout + column]);
    y[at * cout + column] = from_float<T>(v * gain);
  }
};

// Finishes kCount neighbouring channels of any pixels: what belongs to the channels is loaded once. `column` is a
// multiple of kCount, so that with cout % kCount == 0 every access is a whole Run.
template <class T, int kCount>
struct Columns {
  using R = Run<T, kCount>;
  const Epilogue<T>& epilogue;
  int column;
  bool whole;
  float mul[kCount], add[kCount];

  __device__ __forceinline__ Columns(const Epilogue<T>& shared, int first)
      : epilogue(shared), column(first), whole(shared.cout % kCount == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      mul[i] = 1, add[i] = 0;
      if (column + i < epilogue.cout) epilogue.channel(column + i, mul[i], add[i]);
    }
  }

  __device__ __forceinline__ R load(const T* __restrict__ row) const {
    R run{};
    if (column >= epilogue.cout) return run;
    if (whole) return *reinterpret_cast<const R*>(row + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < epilogue.cout) run.v[i] = row[column + i];
    return run;
  }
  // Of the residual's pixel `at`; zeros where there is no residual.
  __device__ __forceinline__ R residual(std::int64_t at) const {
    return epilogue.residual ? load(epilogue.residual + at * epilogue.cout) : R{};
  }
  // Stores the channels that exist at pixel `at` of image `image`.
  __device__ __forceinline__ void store(const float (&sums)[kCount], std::int64_t image, std::int64_t at,
                                        const R& residual) const {
    if (column >= epilogue.cout) return;
    R shift{};
    if (epilogue.image_shift) shift = load(epilogue.image_shift + image * epilogue.cout);
    R out;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float v = epilogue.activate(fmaf(sums[i], mul[i], add[i]) + to_float(shift.v[i]));
      out.v[i] = from_float<T>((v + to_float(residual.v[i])) * epilogue.gain);
    }
    write(at, out);
  }
  // The same of what was loaded before; without `more` there is neither residual, shift nor activation.
  __device__ __forceinline__ void finish(const float (&sums)[kCount], std::int64_t at, const R& residual,
                                         const R& shift, bool more) const {
    R out;
    float v[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = fmaf(sums[i], mul[i], add[i]);
    if (more)
#pragma unroll
      for (int i = 0; i < kCount; ++i) v[i] = epilogue.activate(v[i] + to_float(shift.v[i])) + to_float(residual.v[i]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) out.v[i] = from_float<T>(v[i] * epilogue.gain);
    write(at, out);
  }
  // The channels that exist.
  __device__ __forceinline__ void write(std::int64_t at, const R& out) const {
    T* to = epilogue.y + at * epilogue.cout + column;
    if (whole) {
      *reinterpret_cast<R*>(to) = out;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i < epilogue.cout) to[i] = out.v[i];
  }
};

// A second launch that reads y back: for rungs whose tiles do not hold whole slabs.
Status launch_statistics(const Convolution& convolution, DType dtype, const Operands& operands,
                         const LaunchContext& context);

// A channel's input, normed and rounded to T. `coefficients` are its image's: [2, cin], multipliers, then addends.
template <class T>
__device__ __forceinline__ float normed(const Convolution& c, const float* coefficients, int channel, float in) {
  in = fmaf(in, coefficients[channel], coefficients[c.cin + channel]);
  return to_float(from_float<T>(c.norm == Norm::affine_silu ? silu<T>(in) : in));
}

}  // namespace noisefloor::convolution
