// edm_precondition, tiled: 16 bytes per thread and tensor, several of them in flight (kernels/device/stream.cuh).
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, and one set of coefficients, with a
// multiplication in place of the 64-bit division, per vector.
//
// Tile: 256 threads x 2 vectors of two inputs, or 4 of one. Shared memory: none.
//
// Bound: memory traffic; limited by loads in flight and by blocks that load, compute and end.
//
// Requires: an image's length that is a multiple of 16 bytes, so that vectors do not cross images; below 2^31 vectors.
// Numerics: fp32, one rounding at the end.
// Source: original.
#include "kernels/edm_precondition/map.cuh"

namespace noisefloor::edm_precondition {

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_map(p, dtype, t, [&](const auto& map) { return stream(map, context, "edm_precondition tiled"); });
}

}  // namespace noisefloor::edm_precondition
