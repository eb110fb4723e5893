// mse_loss for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_sums.cuh).
//
// Better than tiled: the loads in flight live in shared memory and do not wait for sums and stores. Honours
// programmatic dependent launch.
//
// Requires: as tiled.
// Bound: memory traffic; limited in small problems by the second launch.
// Numerics: fp32 sums in a fixed order; dy is rounded once.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/device/bulk_sums.cuh"
#include "kernels/mse_loss/sums.cuh"

namespace noisefloor::mse_loss {

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                        const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    return launch_bulk_sums("mse_loss ptx_sm90a", Errors<T>(p, t), partial_sums(p), Finish(p, t), scratch, context);
  });
}

}  // namespace noisefloor::mse_loss
