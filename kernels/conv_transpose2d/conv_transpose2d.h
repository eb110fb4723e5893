// conv_transpose2d: a transposed convolution of stride 2 that doubles channels-last images, 2x2 without overlap or 4x4
// with a pad of 1.
//
//   y[i, oy, ox, co] = act(sum over iy, ix, ky, kx, ci of x[i, iy, ix, ci] * w[co, ky, kx, ci] + bias[co]),
//       over the terms with 2 iy + ky - pad = oy and 2 ix + kx - pad = ox;  pad = 0 for 2x2, 1 for 4x4
//
// The output is [2h, 2w]. PyTorch's conv_transpose2d keeps its weights as [cin, cout, ky, kx].
#pragma once

#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/core/definition.h"

namespace noisefloor::conv_transpose2d {

using convolution::Activation;  // none, silu, relu

struct Problem {
  std::int64_t n = 1;  // images
  std::int64_t h = 1;  // of x
  std::int64_t w = 1;  // of x
  std::int64_t cin = 1;
  std::int64_t cout = 1;
  std::int64_t kernel = 4;  // 2 or 4
  Activation act = Activation::none;
  bool bias = true;

  std::int64_t pad() const { return kernel == 4 ? 1 : 0; }
};

// Of the engine's tensors x, w, bias and y, as kernels/convolution/convolution.h says.
using Tensors = convolution::Operands;

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last

}  // namespace noisefloor::conv_transpose2d
