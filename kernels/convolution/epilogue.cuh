// The convolutions' part of the products' epilogue (kernels/product): activations, and where a row's pixel lies. Device
// code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/device/divider.h"
#include "kernels/product/epilogue.cuh"

namespace noisefloor::convolution {

using product::Run;

struct PhasePixels;
struct Outputs {
  using Pixels = PhasePixels;
  using Activation = convolution::Activation;
  using Operands = convolution::Operands;
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

// Of a gradient (GradientOperands).
struct GradientPixels;
struct GradientOutputs : Outputs {
  using Operands = GradientOperands;
  using Pixels = GradientPixels;
  static constexpr product::Terms kTerms{.weighs = true};
};
template <class Op>
inline constexpr bool kIsGradient = Op::kTerms.weighs;

template <class T, class Op = Outputs>
struct Epilogue : product::Epilogue<T, Op> {
  int repeated_width;  // of the output, where the residual has half of it; else 0

  Epilogue(const Convolution& c, const typename Op::Operands& o)
      : product::Epilogue<T, Op>{.columns = c.cout,
                                 .act = c.act,
                                 .out = static_cast<T*>(o.y),
                                 .bias = c.bias ? static_cast<const T*>(o.bias) : nullptr,
                                 .image_shift = c.image_shift ? static_cast<const T*>(o.image_shift) : nullptr,
                                 .residual = c.residual ? static_cast<const T*>(o.residual) : nullptr,
                                 .factors = c.affine ? static_cast<const T*>(o.scale) : nullptr,
                                 .addends = c.affine ? static_cast<const T*>(o.shift) : nullptr,
                                 .gain = c.gain},
        repeated_width(c.residual_upsample ? c.x.out : 0) {
    if constexpr (kIsGradient<Op>) this->scale = o.factor;
  }

  // The residual's pixel for output pixel `at`.
  __device__ __forceinline__ std::int64_t residual_pixel(std::int64_t at) const {
    return repeated_width == 0 ? at : repeated_pixel(repeated_width, at);
  }
};

template <class T, int kCount, class Op = Outputs>
using Columns = product::Columns<Epilogue<T, Op>, kCount>;

// A phase's pixels, where the product has fewer than 2^31 rows.
struct PhasePixels {
  Divider pixels, width;  // of an image's phase

  explicit PhasePixels(const Convolution& c, const Operands& = {})
      : pixels(static_cast<int>(c.phase_pixels())), width(c.x.out) {}
  // The output pixel of row `row` of phase `phase`.
  __device__ __forceinline__ int of_row(const Convolution& c, int phase, int row) const {
    if (c.phases() == 1) return row;
    const int image = row / pixels, at = row % pixels, y = at / width;
    return (image * c.y.out_extent() + y * c.y.phases + c.phase_y(phase)) * c.x.out_extent() +
           (at - y * width) * c.x.phases + c.phase_x(phase);
  }
};

// The pixels of a gradient's phase.
struct GradientPixels {
  Divider pixels, width;
  int step, first_y, first_x, image_height, image_width;

  GradientPixels(const Convolution& c, const GradientOperands& o)
      : pixels(static_cast<int>(c.phase_pixels())),
        width(c.x.out),
        step(o.step),
        first_y(o.first_y),
        first_x(o.first_x),
        image_height(o.height),
        image_width(o.width) {}
  __device__ __forceinline__ int of_row(const Convolution&, int, int row) const {
    const int image = row / pixels, at = row - image * pixels, y = at / width;
    return (image * image_height + y * step + first_y) * image_width + (at - y * width) * step + first_x;
  }
};

// For product::drain_sums: the epilogue, from row `row0` of the phase on.
template <class T, int kCount, class Op = Outputs>
struct ToOutput {
  const Columns<T, kCount, Op>& columns;
  const Convolution& c;
  const typename Op::Pixels& pixels;
  int phase, row0, rows;

  struct Ahead {
    typename Columns<T, kCount, Op>::Ahead terms;
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
