// ptx_sm90a for bf16: see ptx_sm90a.cuh.
#include "kernels/convolution/ptx_sm90a.cuh"

namespace noisefloor::convolution {

template <>
Status launch_ptx<__nv_bfloat16>(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                                 const LaunchContext& context) {
  return with_tile<kTiles.size()>(
      schedule.tile, [&]<int kTile>() { return launch_tile<__nv_bfloat16, kTile>(c, dtype, o, schedule, context); });
}

}  // namespace noisefloor::convolution
