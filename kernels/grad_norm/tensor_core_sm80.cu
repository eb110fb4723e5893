// grad_norm, tensor cores: squares, each as three numbers of bf16, are added as a product with ones
// (kernels/device/ordered_sums.cuh).
//
// What differs from tiled: two mma and some 20 instructions to split four squares take the place of four additions.
// README.md: why it does not win.
//
// Requires: a multiple of 4 gradients; below 2^31 vectors.
// Bound: memory traffic, beside it issue slots.
// Numerics: squares of 24 bits; fp32 sums in a fixed order. An infinite gradient makes a NaN of the norm.
// Source: original.
#include "kernels/grad_norm/sums.cuh"

namespace noisefloor::grad_norm {

Status launch_tensor_core_sm80(const Problem& p, DType, const Tensors& t, const Scratch& scratch,
                               const LaunchContext& context) {
  return launch_sums<OnesProduct>("grad_norm tensor_core_sm80", Squares(p, t), partial_sums(p), Finish(p, t), scratch,
                                  context);
}

}  // namespace noisefloor::grad_norm
