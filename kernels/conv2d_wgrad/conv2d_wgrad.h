// conv2d_wgrad: the gradients of a convolution of channels-last images by its weights, its bias and its per-image bias.
//
//   y[i, oy, ox, co] = sum over ky, kx, ci of  u[i, oy * stride + ky - pad, ox * stride + kx - pad, ci] * w[co, ky, kx,
//   ci]
//                      + bias[co] + shift[i, co]
//   dw[co, ky, kx, ci] = scale * sum over i, oy, ox of  dy[i, oy, ox, co]
//                                                       * u[i, oy * stride + ky - pad, ox * stride + kx - pad, ci]
//   dbias[co]          = scale * sum over i, oy, ox of  dy[i, oy, ox, co]
//   dshift[i, co]      = scale * sum over oy, ox of     dy[i, oy, ox, co]
//
// With `column` there is one kx, and no pad along x. u is x, zero outside of the image; with `upsample` it is x with
// every pixel repeated 2x2.
#pragma once

#include <cstdint>

#include "kernels/convolution/gradient.h"
#include "kernels/core/definition.h"

namespace noisefloor::conv2d_wgrad {

struct Problem : convolution::Shape {
  double scale = 1;
  bool bias = true;          // dbias is written
  bool image_shift = false;  // dshift is written
};
using Tensors = convolution::Wgrad;

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last

}  // namespace noisefloor::conv2d_wgrad
