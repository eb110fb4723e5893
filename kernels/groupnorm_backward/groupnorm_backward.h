// The gradients of kernels/groupnorm: of its x, gamma, beta, scale and shift, from dy, that of its y, and from the mean
// and rstd of each group that it leaves (`stats`).
//
//   xh = (x - mean) rstd,    norm = xh gamma + beta,    v = norm (1 + scale) + shift (without silu+ss: norm)
//   dv = dy silu'(v)         fusion none: dy
//   dshift[i, c] = sum over s of dv                      dscale[i, c] = sum over s of dv norm
//   dbeta[c] = sum over i, s of dv (1 + scale)           dgamma[c] = sum over i, s of dv (1 + scale) xh
//   dh = dv (1 + scale) gamma
//   dx = rstd (dh - mean over the group of dh - xh mean over the group of (dh xh)) + residual_scale residual
//
// `residual`: a gradient that x has from elsewhere. silu'(v) = s (1 + v (1 - s)) with s = 1 / (1 + exp(-v)). Source:
// the chain rule; as for batches, Ioffe and Szegedy (2015).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::exact {
struct NormShape;
}

namespace noisefloor::groupnorm_backward {

using groupnorm::Fusion;

struct Problem {
  std::int64_t n = 1;   // images
  std::int64_t hw = 1;  // pixels of an image
  std::int64_t channels = 1;
  std::int64_t groups = 1;  // divides channels
  Fusion fusion = Fusion::none;
  bool packed = false;       // fusion silu+ss: scale and shift are one tensor, as are their gradients
  bool fp32_affine = false;  // gamma and beta are fp32
  bool residual = false;     // add residual_scale * residual to dx
  double residual_scale = 1;

  constexpr std::int64_t channels_per_group() const { return channels / groups; }
  constexpr std::int64_t elements() const { return n * hw * channels; }
  constexpr std::int64_t group_size() const { return hw * channels_per_group(); }
  constexpr DType affine_dtype(DType dtype) const { return fp32_affine ? DType::fp32 : dtype; }
  constexpr bool scale_shift() const { return fusion == Fusion::silu_scale_shift; }
  // Elements from one image's scale to the next one's, and of shift and of the gradients alike.
  constexpr std::int64_t scale_shift_stride() const { return packed ? 2 * channels : channels; }
};

// Device pointers (host pointers for the host variant); T is the row's dtype. Null where the problem has no such
// tensor.
struct Tensors {
  const void* x = nullptr;         // T [n, hw, channels]
  const void* dy = nullptr;        // T [n, hw, channels]
  const void* gamma = nullptr;     // T [channels], or fp32, as beta
  const void* beta = nullptr;      // T [channels]
  const float* mean = nullptr;     // fp32 [n, groups]
  const float* rstd = nullptr;     // fp32 [n, groups]
  const void* scale = nullptr;     // T [n, channels], silu+ss only; packed: scale_shift, T [n, 2 channels]
  const void* shift = nullptr;     // T [n, channels], silu+ss only; packed: not read
  const void* residual = nullptr;  // T [n, hw, channels], with residual only
  void* dx = nullptr;              // T [n, hw, channels]
  float* dgamma = nullptr;         // fp32 [channels]
  float* dbeta = nullptr;          // fp32 [channels]
  void* dscale = nullptr;          // T [n, channels], silu+ss only; packed: dscale_shift, T [n, 2 channels]
  void* dshift = nullptr;          // T [n, channels], silu+ss only; packed: not written
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a,
    launch_ptx_sm90a_grid;
Definition::Variant::WorkspaceBytes host_workspace_bytes, naive_workspace_bytes, tiled_workspace_bytes,
    tensor_core_sm80_workspace_bytes, ptx_sm90a_grid_workspace_bytes;

// With `shift` and `dshift` where they stand in packed tensors: behind scale and dscale of the same image. Rows of all
// are scale_shift_stride apart.
Tensors unpacked(const Problem&, DType, Tensors);

// The forward op, whose rows plans cut.
constexpr groupnorm::Problem forward_of(const Problem& p) {
  return {.n = p.n,
          .hw = p.hw,
          .channels = p.channels,
          .groups = p.groups,
          .fusion = p.fusion,
          .packed = p.packed,
          .fp32_affine = p.fp32_affine};
}

exact::NormShape shape_of(const Problem&);  // as kernels/core/exact_norm.h and host_norm.h take it

}  // namespace noisefloor::groupnorm_backward
