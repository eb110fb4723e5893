// conv3d_temporal: a 3x1x1 convolution along the frames of a video, in place of its layout: no permutation.
//
//   y[b, f, s, co] = sum over t in 0..2, ci of x[b, f + t - 1, s, ci] * w[co, t, ci]
//                  (+ bias[co]) (+ image_shift[b, co]) (+ residual[b, f, s, co])
//
// Frames before the first and after the last are 0. s runs over the hw pixels of a frame. image_shift (a timestep
// embedding) is a row per video, the same for all of its frames.
#pragma once

#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/core/definition.h"

namespace noisefloor::conv3d_temporal {

struct Problem {
  std::int64_t batch = 1;   // videos
  std::int64_t frames = 1;  // of each
  std::int64_t hw = 1;      // height * width
  std::int64_t cin = 1;
  std::int64_t cout = 1;
  bool bias = true;
  bool image_shift = false;  // bias per video and channel
  bool residual = false;

  std::int64_t pixels() const { return batch * frames * hw; }
};

// Of the engine's tensors x, w, bias, image_shift, residual and y, as kernels/convolution/convolution.h says.
using Tensors = convolution::Operands;

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last

}  // namespace noisefloor::conv3d_temporal
