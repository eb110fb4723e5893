// conv2d_dgrad's ptx_sm90a and ptx_sm90a_halo for bf16: those of the convolutions, in the tiles that take n-major
// weights.
#include "kernels/convolution/ptx_halo_launch.cuh"
#include "kernels/convolution/ptx_sm90a.cuh"

namespace noisefloor::convolution {

Status launch_gradient_bf16(const Convolution& c, const GradientOperands& o, const Schedule& schedule,
                            const LaunchContext& context) {
  return with_tile<kTiles.size()>(schedule.tile, [&]<int kTile>() {
    if constexpr (takes_n_major(kTiles[kTile]))
      return launch_tile<__nv_bfloat16, kTile, GradientOutputs>(c, DType::bf16, o, schedule, context);
    else
      return failure(StatusCode::invalid_argument, "convolution: this tile takes no n-major weights");
  });
}

Status launch_gradient_halo_bf16(const Convolution& c, const GradientOperands& o, const Schedule& schedule,
                                 const LaunchContext& context) {
  return with_tile<kHaloTiles.size()>(schedule.tile, [&]<int kTile>() {
    if constexpr (takes_n_major(kHaloTiles[kTile]))
      return launch_halo_tile<__nv_bfloat16, kTile, /*kFused=*/false, GradientOutputs>(c, DType::bf16, o, schedule,
                                                                                       context);
    else
      return failure(StatusCode::invalid_argument, "convolution: this tile takes no n-major weights");
  });
}

}  // namespace noisefloor::convolution
