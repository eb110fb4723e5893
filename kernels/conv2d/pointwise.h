// A 1x1 convolution as the matrix product that it is: D[m = pixels, n = cout] = x[m, k = cin] w[n, k]^T, by gemm's
// ptx_sm90a. Its tiles are runs of pixels, so it needs neither gathered taps nor patches.
#pragma once

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::conv2d {

inline constexpr VariantInfo kPtxSm90aPointwise{"ptx_sm90a_pointwise", Kind::ptx, Arch::sm90a};

gemm::Problem product_of(const Problem& problem);
Definition::Way::CanRun can_run_pointwise;
Definition::Launcher launch_pointwise;

}  // namespace noisefloor::conv2d
