// conv2d_dgrad: the gradient of a convolution of channels-last images by its input.
//
//   du[i, uy, ux, ci] = sum over oy, ox, ky, kx, co of  dy[i, oy, ox, co] * weight[co, ky, kx, ci],
//       over the terms with oy * stride + ky - pad = uy and ox * stride + kx - pad = ux
//
//   dx = scale * du + residual_scale * residual
//
// With `column` there is one kx, and no pad along x. u is x; with `upsample` it is x with every pixel repeated 2x2, and
// du's four pixels are summed. A residual is another gradient of x, to which this one is added.
#pragma once

#include <cstdint>

#include "kernels/convolution/gradient.h"
#include "kernels/core/definition.h"

namespace noisefloor::conv2d_dgrad {

struct Problem : convolution::Shape {
  double scale = 1;
  bool residual = false;
  double residual_scale = 1;  // 1 without a residual
};
using Tensors = convolution::Dgrad;

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last

}  // namespace noisefloor::conv2d_dgrad
