// grad_norm for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_sums.cuh).
//
// Better than tiled: the loads in flight live in shared memory and do not wait for sums. Honours programmatic dependent
// launch.
//
// Requires: a multiple of 4 gradients; below 2^31 vectors.
// Bound: memory traffic; limited in small problems by the second launch.
// Numerics: fp32 sums in a fixed order, four chains a thread.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/device/bulk_sums.cuh"
#include "kernels/grad_norm/sums.cuh"

namespace noisefloor::grad_norm {

Status launch_ptx_sm90a(const Problem& p, DType, const Tensors& t, const Scratch& scratch,
                        const LaunchContext& context) {
  return launch_bulk_sums("grad_norm ptx_sm90a", Squares(p, t), partial_sums(p), Finish(p, t), scratch, context);
}

}  // namespace noisefloor::grad_norm
