// mse_loss, tiled: 16 bytes per thread and tensor, eight loads in flight (kernels/device/ordered_sums.cuh).
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, and one weight, with a multiplication in
// place of the 64-bit division, per vector.
//
// Bound: memory traffic; limited in small problems by the second launch.
//
// Requires: an image's length that is a multiple of 16 bytes, so that vectors do not cross images; below 2^31 vectors.
// Numerics: fp32 sums in a fixed order; dy is rounded once.
// Source: original.
#include "kernels/mse_loss/sums.cuh"

namespace noisefloor::mse_loss {

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    return launch_sums<LaneSums>("mse_loss tiled", Errors<T>(p, t), partial_sums(p), Finish(p, t), scratch, context);
  });
}

}  // namespace noisefloor::mse_loss
