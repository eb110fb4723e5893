// The convolutions' part of the products' epilogue (kernels/product): activations, and where a row's pixel lies. Device
// code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/device/divider.h"
#include "kernels/product/epilogue.cuh"

namespace noisefloor::convolution {

using product::Run;

struct Outputs {
  using Activation = convolution::Activation;
  static constexpr product::Terms kTerms{.factors = true, .gain = true};

  template <class T, int kCount>
  __device__ __forceinline__ static void apply(Activation act, float (&v)[kCount]) {
    if (act == Activation::silu) {
#pragma unroll
      for (float& x : v) x = silu<T>(x);
    } else if (act == Activation::relu) {
#pragma unroll
      for (float& x : v) x = relu(x);
    }
  }
};

template <class T>
struct Epilogue : product::Epilogue<T, Outputs> {
  int repeated_width;  // of the output, where the residual has half of it; else 0

  Epilogue(const Convolution& c, const Operands& o)
      : product::Epilogue<T, Outputs>{.columns = c.cout,
                                      .act = c.act,
                                      .out = static_cast<T*>(o.y),
                                      .bias = c.bias ? static_cast<const T*>(o.bias) : nullptr,
                                      .image_shift = c.image_shift ? static_cast<const T*>(o.image_shift) : nullptr,
                                      .residual = c.residual ? static_cast<const T*>(o.residual) : nullptr,
                                      .factors = c.affine ? static_cast<const T*>(o.scale) : nullptr,
                                      .addends = c.affine ? static_cast<const T*>(o.shift) : nullptr,
                                      .gain = c.gain},
        repeated_width(c.residual_upsample ? c.x.out : 0) {}

  // The residual's pixel for output pixel `at`.
  __device__ __forceinline__ std::int64_t residual_pixel(std::int64_t at) const {
    return repeated_width == 0 ? at : repeated_pixel(repeated_width, at);
  }
};

template <class T, int kCount>
using Columns = product::Columns<Epilogue<T>, kCount>;

// A phase's pixels, where the product has fewer than 2^31 rows.
struct PhasePixels {
  Divider pixels, width;  // of an image's phase

  explicit PhasePixels(const Convolution& c) : pixels(static_cast<int>(c.phase_pixels())), width(c.x.out) {}
  // The output pixel of row `row` of phase `phase`.
  __device__ __forceinline__ int of_row(const Convolution& c, int phase, int row) const {
    if (c.phases() == 1) return row;
    const int image = row / pixels, at = row % pixels, y = at / width;
    return (image * c.y.out_extent() + y * c.y.phases + c.phase_y(phase)) * c.x.out_extent() +
           (at - y * width) * c.x.phases + c.phase_x(phase);
  }
};

// For product::drain_sums: the epilogue, from row `row0` of the phase on.
template <class T, int kCount>
struct ToOutput {
  const Columns<T, kCount>& columns;
  const Convolution& c;
  const PhasePixels& pixels;
  int phase, row0, rows;

  struct Ahead {
    typename Columns<T, kCount>::Ahead terms;
    int pixel = -1;  // none
  };
  __device__ __forceinline__ Ahead prefetch(int row) const {
    if (row0 + row >= rows) return {};
    const int at = pixels.of_row(c, phase, row0 + row);
    const int image = columns.epilogue.image_shift ? (row0 + row) / pixels.pixels : 0;
    return {columns.ahead(image, at), at};
  }
  __device__ __forceinline__ void take(int, const float (&sums)[kCount], const float (&gates)[kCount],
                                       const Ahead& ahead) const {
    if (ahead.pixel >= 0) columns.store(ahead.pixel, sums, gates, ahead.terms);
  }
};

// A second launch that reads y back: for variants whose tiles do not hold whole slabs.
Status launch_statistics(const Convolution& convolution, DType dtype, const Operands& operands,
                         const LaunchContext& context);

// A channel's input, normed and rounded to T. `coefficients` are its image's: [2, cin], multipliers, then addends.
template <class T>
__device__ __forceinline__ float normed(const Convolution& c, const float* coefficients, int channel, float in) {
  in = fmaf(in, coefficients[channel], coefficients[c.cin + channel]);
  return to_float(from_float<T>(c.norm == Norm::affine_silu ? silu<T>(in) : in));
}

}  // namespace noisefloor::convolution
