// The launcher of ptx_sm90a_halo (its kernel: ptx_halo.cuh).
//
// Source: original.
#include "kernels/convolution/halo.h"
#include "kernels/convolution/ptx_halo_launch.cuh"

namespace noisefloor::convolution {

// ptx_halo_fused_sm90a.cu
Status launch_halo_fused(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                         const LaunchContext& context);

static Status launch_halo(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                          const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kForwardHaloTiles>(schedule.tile, [&]<int kTile>() {
      return launch_halo_tile<T, kTile, /*kFused=*/false>(c, dtype, o, schedule, context);
    });
  });
}

Status launch_ptx_sm90a_halo(const Convolution& c, DType dtype, const Operands& o, const Scratch&,
                             const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const int sms = context.device->sm_count;
  const auto schedule = context.choice.empty() ? choose_halo(c, sms) : parse_halo_schedule(c, context.choice, sms);
  if (!schedule) return failure(StatusCode::invalid_argument, "convolution: no such schedule");
  const bool fused = c.norm != Norm::none || c.stats;
  return (fused ? launch_halo_fused : launch_halo)(c, dtype, o, *schedule, context);
}

}  // namespace noisefloor::convolution
