// ptx_sm90a_halo with a norm in front or statistics behind: a file of its own, compiled beside the launcher's.
#include "kernels/convolution/ptx_halo_launch.cuh"

namespace noisefloor::convolution {

Status launch_halo_fused(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                         const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kForwardHaloTiles>(schedule.tile, [&]<int kTile>() {
      return launch_halo_tile<T, kTile, /*kFused=*/true>(c, dtype, o, schedule, context);
    });
  });
}

}  // namespace noisefloor::convolution
