// mse_loss, tensor cores: squares, each as three numbers of bf16, are added as a product with ones
// (kernels/device/ordered_sums.cuh).
//
// What differs from tiled: three mma and some 40 instructions to split eight squares take the place of eight additions.
// README.md: why it does not win.
//
// Requires: as tiled.
// Bound: memory traffic, beside it issue slots.
// Numerics: squares of 24 bits; fp32 sums in a fixed order; dy is rounded once. An infinite error makes a NaN of the
// loss.
// Source: original.
#include "kernels/mse_loss/sums.cuh"

namespace noisefloor::mse_loss {

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                               const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    return launch_sums<OnesProduct>("mse_loss tensor_core_sm80", Errors<T>(p, t), partial_sums(p), Finish(p, t),
                                    scratch, context);
  });
}

}  // namespace noisefloor::mse_loss
