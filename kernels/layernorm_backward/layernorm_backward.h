// The gradients of kernels/layernorm: of what it normalises, and of gamma, beta, scale and shift, from dy, that of its
// y.
//
//   xh = (x - mean) rstd,   dn = dy (1 + scale[i, c]),   dh = dn gamma     i: the row's image; without them, 1 and 1
//   dx = rstd (dh - mean over the row of dh - xh mean over the row of (dh xh)) + residual_scale residual
//   dbeta[c] = sum over rows of dn                 dgamma[c] = sum over rows of dn xh
//   dshift[i, c] = sum over the image's rows of dy     dscale[i, c] = the same of dy (xh gamma + beta)
//
// x: of a layernorm with residual, its sum. mean and rstd are computed anew from x. `residual`: a gradient that x has
// from elsewhere. Source: the chain rule; Ba, Kiros and Hinton (2016).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"

namespace noisefloor::exact {
struct NormShape;
}

namespace noisefloor::layernorm_backward {

enum class Fusion { none, scale_shift };

struct Problem {
  std::int64_t rows = 1;  // of all images
  std::int64_t channels = 1;
  std::int64_t images = 1;  // divides rows; rows of an image share scale and shift
  Fusion fusion = Fusion::none;
  bool affine = true;
  double eps = 1e-5;
  bool residual = false;  // add residual_scale * residual to dx
  double residual_scale = 1;

  constexpr std::int64_t elements() const { return rows * channels; }
  constexpr std::int64_t rows_per_image() const { return rows / images; }
  constexpr bool scale_shift() const { return fusion == Fusion::scale_shift; }
  constexpr bool sums() const { return affine || scale_shift(); }  // whether there is a gradient but dx
};

// Device pointers (host pointers for the host variant); T is the row's dtype. Null where the problem has no such
// tensor.
struct Tensors {
  const void* x = nullptr;         // T [rows, channels]
  const void* dy = nullptr;        // T [rows, channels]
  const void* gamma = nullptr;     // T [channels], affine only
  const void* beta = nullptr;      // T [channels], affine only
  const void* scale = nullptr;     // T [images, channels], scale_shift only; no gradient depends on shift
  const void* residual = nullptr;  // T [rows, channels], with residual only
  void* dx = nullptr;              // T [rows, channels]
  float* dgamma = nullptr;         // fp32 [channels], affine only
  float* dbeta = nullptr;          // fp32 [channels], affine only
  void* dscale = nullptr;          // T [images, channels], scale_shift only
  void* dshift = nullptr;          // T [images, channels], scale_shift only
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;
Definition::Variant::WorkspaceBytes host_workspace_bytes, naive_workspace_bytes, tiled_workspace_bytes,
    tensor_core_sm80_workspace_bytes, ptx_sm90a_workspace_bytes;

exact::NormShape shape_of(const Problem&);  // as kernels/core/exact_norm.h and host_norm.h take it

}  // namespace noisefloor::layernorm_backward
