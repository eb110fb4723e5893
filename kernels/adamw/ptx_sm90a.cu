// adamw for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh).
//
// What differs from tiled: the loads in flight, 120 KiB an SM, live in shared memory and do not wait for roots,
// divisions and stores. Honours programmatic dependent launch.
//
// Requires: a multiple of 4 parameters; below 2^31 vectors.
// Bound: memory traffic, 38 bytes a parameter with ema and a copy of 16 bits.
// Numerics: fp32; the copy is rounded once.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/adamw/map.cuh"
#include "kernels/device/bulk_pipeline.cuh"

namespace noisefloor::adamw {

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_map(p, dtype, t, [&](const auto& map) { return launch_bulk(FlatWork(map), context); });
}

}  // namespace noisefloor::adamw
