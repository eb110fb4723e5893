// q_sample, tiled: 16 bytes per thread and tensor, several of them in flight (kernels/device/stream.cuh).
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, a multiplication in place of the 64-bit
// division, and every number of a Philox block is used.
//
// Tile: 256 threads x 2 vectors of two inputs, or 4 of one; noise drawn in 16 bits has a kernel of its own (drawn.cuh).
// Shared memory: none.
//
// Bound: memory traffic; limited by loads in flight and by blocks that load, compute and end. Noise drawn in 16 bits
// and not kept: instructions, about 165 per 8 elements.
//
// Requires: an image's length that is a multiple of 16 bytes, so that vectors do not cross images; below 2^31 vectors.
// Numerics: fp32, one rounding at the end; noise drawn in 16 bits within 1e-5 of the definition.
// Source: original.
#include "kernels/q_sample/drawn.cuh"
#include "kernels/q_sample/map.cuh"

namespace noisefloor::q_sample {

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  if (p.noise == Noise::drawn && size_of(dtype) == 2 && fills_blocks(p)) return launch_drawn(p, dtype, t, context);
  return with_map(p, dtype, t, [&](const auto& map) { return stream(map, context, "q_sample tiled"); });
}

}  // namespace noisefloor::q_sample
