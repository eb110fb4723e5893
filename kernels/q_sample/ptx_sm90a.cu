// q_sample for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh), 512 vectors of each input
// a tile; noise drawn in 16 bits by copies that each thread makes for itself (drawn_ring.cuh).
//
// Better than tensor_core_sm80: no multiply-add is in vain, and it takes fp32, too. What differs from tiled, the
// variant before: the loads in flight live in shared memory and do not depend on occupancy, and a block lives for
// several tiles. Honours programmatic dependent launch.
//
// Requires: as tiled.
// Bound: memory traffic, 6 bytes an element (bf16, noise given) or 4 (drawn); drawing takes about 160 instructions per
// 8 elements.
// Numerics: fp32, one rounding at the end; noise drawn in 16 bits within 1e-5 of the definition.
// Source: original; PTX ISA, "cp.async", "griddepcontrol".
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/q_sample/drawn_ring.cuh"
#include "kernels/q_sample/map.cuh"

namespace noisefloor::q_sample {
namespace {

Status launch_ring(const Problem& p, DType dtype, const Tensors& t, const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    DrawnArguments a = drawn_arguments(p, t);
    const std::uint32_t steps = ring_steps(a.vectors, p.batch, context.device->sm_count);
    a.tiles = ring_tiles(a.vectors, steps);
    const LaunchShape shape{.grid = a.tiles * static_cast<std::uint32_t>(p.batch),
                            .block = kDrawnThreads,
                            .programmatic = context.programmatic_launch};
    const auto kernel = t.noise_out ? ring_kernel<T, true> : ring_kernel<T, false>;
    return launch_kernel("q_sample ring_kernel", kernel, shape, context.stream, a, steps);
  });
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  if (p.noise == Noise::drawn && size_of(dtype) == 2 && fills_blocks(p)) return launch_ring(p, dtype, t, context);
  return with_map(p, dtype, t, [&](const auto& map) { return launch_bulk(FlatWork(map), context); });
}

}  // namespace noisefloor::q_sample
