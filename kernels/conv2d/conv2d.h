// conv2d: a convolution of channels-last images, with what diffusion networks put behind it, in one launch.
//
//   u[i, y, x, ci] = x[i, y, x, ci]                                                norm none
//   v = x * norm_coefficients[i, 0, ci] + norm_coefficients[i, 1, ci]
//   u = round(v)                                                                   norm affine
//   u = round(silu(v))                                                             norm affine+silu
//   sum[i, y, x, co] = over ky, kx, ci of  u[i, y * stride + ky - pad, x * stride + kx - pad, ci] * w[co, ky, kx, ci]
//                  + over cs of  concat(side, side_skip)[i, y, x, cs] * w_side[co, cs]
//   y   = gain * (act((sum + bias[co]) * scale[co] + shift[co] + image_shift[i, co]) + residual[i, y, x, co])
//
// With `upsample` every pixel of u is repeated 2x2 (nearest); outside of u it is 0. norm is a GroupNorm in front, whose
// statistics groupnorm has turned into coefficients; round() is to the problem's dtype. bias; scale and shift (a
// folded BatchNorm); image_shift (a timestep embedding) and residual are each there or not; with `residual_upsample` it
// has half the output's height and width, and [i, y / 2, x / 2, co] is added. side is a block's skip
// connection with its 1x1, which may read a concatenation of two tensors without its being written; no norm is in front
// of it, and not with `upsample`.
#pragma once

#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/core/definition.h"

namespace noisefloor::gemm {
struct Problem;
}

namespace noisefloor::conv2d {

using convolution::Activation;  // none, silu, relu
using convolution::Norm;        // none, affine, affine_silu

struct Problem : convolution::Shape {
  Norm norm = Norm::none;
  Activation act = Activation::none;
  bool bias = true;
  bool affine = false;       // scale and shift per channel
  bool image_shift = false;  // bias per image and channel
  bool residual = false;
  bool residual_upsample = false;  // it is half as high and wide (nearest); out_h and out_w even, no upsample
  std::int64_t side = 0;           // channels of the second source, which a 1x1 adds to the sums; 0: none
  std::int64_t side_skip = 0;      // channels of the tensor behind it in its concatenation; 0: none
  double gain = 1;
  bool stats = false;    // also write the statistics of y that groupnorm takes
  bool patches = false;  // slabs of the statistics are 8 x 8 pixels each; out_h and out_w multiples of 8, no upsample

  // Pixels of an image fall into slabs of convolution::kSlabRows consecutive ones. With `upsample` the pixels of even
  // and odd row and column (four phases, row parity first) each count by themselves.
  std::int64_t phases() const { return upsample ? 4 : 1; }
  std::int64_t slabs() const {
    return phases() * ((out_h() * out_w() / phases() + convolution::kSlabRows - 1) / convolution::kSlabRows);
  }
  std::int64_t terms() const { return kernel * kernel * cin + side + side_skip; }  // of a sum
};

// All of the problem's dtype unless said otherwise, dense, 16-byte aligned, not overlapping y.
using Tensors = convolution::Operands;

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last

// The problem as the engine sees it: tap by tap, or with `upsample` as four phases of summed weights.
enum class Form { direct, phased };
convolution::Convolution describe(const Problem& problem, Form form);

// A 1x1 convolution as the matrix product that it is: D[m = pixels, n = cout] = x[m, k = cin] w[n, k]^T, by gemm's
// ptx_sm90a. Its tiles are runs of pixels, so it needs neither gathered taps nor patches.
gemm::Problem product_of(const Problem& problem);
Definition::Way::CanRun can_run_pointwise;

}  // namespace noisefloor::conv2d
