// ptx_sm90a_halo for fp16: see ptx_halo.cuh.
#include "kernels/convolution/ptx_halo_launch.cuh"

namespace noisefloor::convolution {

Status launch_halo_fp16(const Convolution& c, const Operands& o, const Schedule& schedule,
                        const LaunchContext& context) {
  return with_tile<kForwardHaloTiles>(schedule.tile, [&]<int kTile>() {
    return launch_halo_tile<__half, kTile, false>(c, DType::fp16, o, schedule, context);
  });
}

}  // namespace noisefloor::convolution
