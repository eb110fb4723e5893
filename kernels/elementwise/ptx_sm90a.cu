// elementwise for sm_90a: blocks fed by the bulk copy engine (kernels/device/bulk_pipeline.cuh).
//
// Better than tensor_core_sm80: no multiply-add is in vain; it takes casts, silu_fma and fp32, too. What differs from
// tiled, the variant before: the loads in flight live in shared memory and do not depend on occupancy, and a block
// lives for several tiles. Honours programmatic dependent launch.
//
// Requires: streams of a multiple of 16 bytes (broadcast: rows), in the order of y: neither geglu nor a change of
// layout, which were slower this way than tiled (docs/experiments/elementwise).
// Bound: memory traffic.
// Numerics: fp32, one rounding at the end.
// Source: original; PTX ISA, "cp.async.bulk".
#include <type_traits>

#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/elementwise/map.cuh"

namespace noisefloor::elementwise {

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_map(p, dtype, t, [&]<class Map>(const Map& map) {
    if constexpr (std::is_base_of_v<FlatInputs<Map::kInputs>, Map>)
      return launch_bulk(FlatWork(map), context);
    else
      return failure(StatusCode::unsupported_problem, "elementwise ptx_sm90a: an input is not in the order of y");
  });
}

}  // namespace noisefloor::elementwise
