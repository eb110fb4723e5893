// adamw, tiled: 16 bytes per thread and access, ten loads in flight (kernels/device/stream.cuh).
//
// Better than naive: a quarter of the memory instructions, and twice the bytes in flight.
//
// Bound: memory traffic, 38 bytes a parameter with ema and a copy of 16 bits; limited by loads in flight.
//
// Requires: a multiple of 4 parameters; below 2^31 vectors.
// Numerics: fp32; the copy is rounded once.
// Source: original.
#include "kernels/adamw/map.cuh"

namespace noisefloor::adamw {

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_map(p, dtype, t, [&](const auto& map) { return stream(map, context, "adamw tiled"); });
}

}  // namespace noisefloor::adamw
