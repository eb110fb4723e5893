// q_sample for sm_90a: blocks fed by the bulk copy engine (kernels/core/bulk_pipeline.cuh).
//
// Better than tiled: the loads in flight live in shared memory and do not depend on occupancy, and a block lives for
// several tiles. Honours programmatic dependent launch.
//
// Tile: 512 vectors of each input, 8 KiB; 6 stages of one input or 3 of two in 48 KiB. Registers: at most 72.
//
// Bound: memory traffic, 6 bytes an element (bf16, noise given) or 4 (drawn). Drawn noise costs about 180 instructions
// per 8 elements (kernels/sampler_step/README.md), 3/4 to 1.1 times the time of a bf16 update's traffic: expected
// limiters there are issue slots and DRAM together.
//
// Requires: as tiled. Numerics: fp32, one rounding at the end.
// Source: original.
#include "kernels/core/bulk_pipeline.cuh"
#include "kernels/q_sample/map.cuh"

namespace noisefloor::q_sample {

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_map(p, dtype, t, [&](const auto& map) { return launch_bulk(FlatWork(map), context); });
}

}  // namespace noisefloor::q_sample
