// ptx_sm90a for fp16: see ptx_sm90a.cuh.
#include "kernels/convolution/ptx_sm90a.cuh"

namespace noisefloor::convolution {

template <>
Status launch_ptx<__half>(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                          const LaunchContext& context) {
  return with_tile<kTiles.size()>(
      schedule.tile, [&]<int kTile>() { return launch_tile<__half, kTile>(c, dtype, o, schedule, context); });
}

}  // namespace noisefloor::convolution
