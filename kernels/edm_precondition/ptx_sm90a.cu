// edm_precondition for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh).
//
// Better than tensor_core_sm80: no multiply-add is in vain, and it takes fp32, too. What differs from tiled, the
// variant before: the loads in flight live in shared memory and do not depend on occupancy, and a block lives for
// several tiles. Honours programmatic dependent launch.
//
// Tile: 512 vectors of each input, 8 KiB; 6 stages of one input or 3 of two in 48 KiB. Registers: at most 72.
//
// Bound: memory traffic, 4 bytes an element before the network and 6 behind it (bf16).
//
// Requires: as tiled. Numerics: fp32, one rounding at the end.
// Source: original.
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/edm_precondition/map.cuh"

namespace noisefloor::edm_precondition {

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_map(p, dtype, t, [&](const auto& map) { return launch_bulk(FlatWork(map), context); });
}

}  // namespace noisefloor::edm_precondition
