// Layer normalisation of rows of channels, with the residual sum in front of it and the scale-shift behind it that
// transformer blocks of diffusion networks have.
//
//   s = x                                    or, with residual, x + residual, which is an output of its own
//   norm[r, c] = (s[r, c] - mean[r]) * rstd[r] * gamma[c] + beta[c]        gamma 1 and beta 0 without affine
//   y = norm                                                               fusion none
//   y = norm * (1 + scale[i, c]) + shift[i, c],  i = r / (rows / images)   fusion scale_shift
//
// mean and variance (biased) are over the channels of a row; rstd = 1 / sqrt(variance + eps). Statistics are those of
// the sum before it is rounded. Sources: Ba, Kiros and Hinton, "Layer Normalization" (2016); scale-shift without affine
// is adaLN of Peebles and Xie, "Scalable Diffusion Models with Transformers" (2023).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"

namespace noisefloor::layernorm {

enum class Fusion { none, scale_shift };

struct Problem {
  std::int64_t rows = 1;  // of all images: batch * tokens
  std::int64_t channels = 1;
  std::int64_t images = 1;  // divides rows; rows of an image share scale and shift
  Fusion fusion = Fusion::none;
  bool residual = false;
  bool affine = true;
  double eps = 1e-5;

  std::int64_t elements() const { return rows * channels; }
  std::int64_t rows_per_image() const { return rows / images; }
  bool scale_shift() const { return fusion == Fusion::scale_shift; }
};

// Device pointers (host pointers for the host variant); T is the row's dtype. Null where the problem has no such
// tensor.
struct Tensors {
  const void* x = nullptr;         // T [rows, channels]
  const void* residual = nullptr;  // T [rows, channels]
  const void* gamma = nullptr;     // T [channels], affine only
  const void* beta = nullptr;      // T [channels], affine only
  const void* scale = nullptr;     // T [images, channels], scale_shift only
  const void* shift = nullptr;     // T [images, channels], scale_shift only
  void* sum = nullptr;             // T [rows, channels]: x + residual, residual only
  void* y = nullptr;               // T [rows, channels]
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

}  // namespace noisefloor::layernorm
