// ptx_sm90a_halo for bf16: see ptx_halo.cuh.
#include "kernels/convolution/ptx_halo_launch.cuh"

namespace noisefloor::convolution {

Status launch_halo_bf16(const Convolution& c, const Operands& o, const Schedule& schedule,
                        const LaunchContext& context) {
  return with_tile<kForwardHaloTiles>(schedule.tile, [&]<int kTile>() {
    return launch_halo_tile<__nv_bfloat16, kTile, false>(c, DType::bf16, o, schedule, context);
  });
}

}  // namespace noisefloor::convolution
