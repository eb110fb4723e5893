// conv2d_dgrad's ptx_sm90a and ptx_sm90a_halo for fp16: those of the convolutions, in the tiles that take n-major
// weights.
#include "kernels/convolution/ptx_halo_launch.cuh"
#include "kernels/convolution/ptx_sm90a.cuh"

namespace noisefloor::convolution {

Status launch_gradient_fp16(const Convolution& c, const GradientOperands& o, const Schedule& schedule,
                            const LaunchContext& context) {
  return with_tile<kTiles.size()>(schedule.tile, [&]<int kTile>() {
    if constexpr (takes_n_major(kTiles[kTile]))
      return launch_tile<__half, kTile, GradientOutputs>(c, DType::fp16, o, schedule, context);
    else
      return failure(StatusCode::invalid_argument, "convolution: this tile takes no n-major weights");
  });
}

Status launch_gradient_halo_fp16(const Convolution& c, const GradientOperands& o, const Schedule& schedule,
                                 const LaunchContext& context) {
  return with_tile<kHaloTiles.size()>(schedule.tile, [&]<int kTile>() {
    if constexpr (takes_n_major(kHaloTiles[kTile]))
      return launch_halo_tile<__half, kTile, /*kFused=*/false, GradientOutputs>(c, DType::fp16, o, schedule, context);
    else
      return failure(StatusCode::invalid_argument, "convolution: this tile takes no n-major weights");
  });
}

}  // namespace noisefloor::convolution
