// grad_norm, tiled: 16 bytes per thread and load, four loads in flight (kernels/device/ordered_sums.cuh).
//
// Better than naive: a quarter of the memory instructions, and enough of them in flight to cover their latency.
//
// Bound: memory traffic; limited in small problems by the second launch.
//
// Requires: a multiple of 4 gradients; below 2^31 vectors.
// Numerics: fp32 sums in a fixed order, four chains a thread.
// Source: original.
#include "kernels/grad_norm/sums.cuh"

namespace noisefloor::grad_norm {

Status launch_tiled(const Problem& p, DType, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  return launch_sums<LaneSums>("grad_norm tiled", Squares(p, t), partial_sums(p), Finish(p, t), scratch, context);
}

}  // namespace noisefloor::grad_norm
