// conv2d_dgrad's ptx_sm90a and ptx_sm90a_halo: those of the convolutions, in the tiles that take n-major weights.
#include "kernels/convolution/gradient.h"
#include "kernels/convolution/ptx_halo_launch.cuh"
#include "kernels/convolution/ptx_sm90a.cuh"

namespace noisefloor::convolution {

// Behind the checks of launch_dgrad_ptx_sm90a.
Status launch_gradient(const Convolution& c, DType dtype, const GradientOperands& o, const Schedule& schedule,
                       const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kTiles.size()>(schedule.tile, [&]<int kTile>() {
      if constexpr (takes_n_major(kTiles[kTile]))
        return launch_tile<T, kTile, GradientOutputs>(c, dtype, o, schedule, context);
      else
        return failure(StatusCode::invalid_argument, "convolution: this tile takes no n-major weights");
    });
  });
}

static Status launch_gradient_halo(const Convolution& c, DType dtype, const GradientOperands& o,
                                   const Schedule& schedule, const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kHaloTiles.size()>(schedule.tile, [&]<int kTile>() {
      if constexpr (takes_n_major(kHaloTiles[kTile]))
        return launch_halo_tile<T, kTile, /*kFused=*/false, GradientOutputs>(c, dtype, o, schedule, context);
      else
        return failure(StatusCode::invalid_argument, "convolution: this tile takes no n-major weights");
    });
  });
}

Status launch_dgrad_ptx_sm90a_halo(const Convolution& forward, DType dtype, const Dgrad& tensors,
                                   const DgradFactors& factors, void*, const LaunchContext& context) {
  const int sms = context.device->sm_count;
  for (int y = 0; y < gradient_phases(forward.y); ++y)
    for (int x = 0; x < gradient_phases(forward.x); ++x) {
      const auto [c, o] = gradient_launch(forward, y, x, tensors, factors);
      if (c.rows() == 0) continue;  // an image of one row or column has no odd ones
      if (const Status status = check_operands(c, o); !status.ok()) return status;
      const auto schedule = context.choice.empty() ? choose_halo(c, sms) : parse_halo_schedule(c, context.choice, sms);
      if (!schedule) return failure(StatusCode::invalid_argument, "convolution: no such schedule");
      if (const Status status = launch_gradient_halo(c, dtype, o, *schedule, context); !status.ok()) return status;
    }
  return success();
}

}  // namespace noisefloor::convolution
