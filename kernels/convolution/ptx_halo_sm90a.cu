// The launchers of ptx_sm90a_halo, conv2d's and conv2d_dgrad's (its kernel: ptx_halo.cuh).
//
// Source: original.
#include "kernels/convolution/gradient.h"
#include "kernels/convolution/halo.h"

namespace noisefloor::convolution {

using HaloLauncher = Status(const Convolution&, const Operands&, const Schedule&, const LaunchContext&);
HaloLauncher launch_halo_bf16, launch_halo_fp16, launch_halo_fused_bf16, launch_halo_fused_fp16;

Status launch_ptx_sm90a_halo(const Convolution& c, DType dtype, const Operands& o, const Scratch&,
                             const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const int sms = context.device->sm_count;
  const auto schedule = context.choice.empty() ? choose_halo(c, sms) : parse_halo_schedule(c, context.choice, sms);
  if (!schedule) return failure(StatusCode::invalid_argument, "convolution: no such schedule");
  const bool fused = c.norm != Norm::none || c.stats;
  HaloLauncher* const launch = dtype == DType::bf16 ? (fused ? launch_halo_fused_bf16 : launch_halo_bf16)
                                                    : (fused ? launch_halo_fused_fp16 : launch_halo_fp16);
  return launch(c, o, *schedule, context);
}

using GradientLauncher = Status(const Convolution&, const GradientOperands&, const Schedule&, const LaunchContext&);
GradientLauncher launch_gradient_halo_bf16, launch_gradient_halo_fp16;

Status launch_dgrad_ptx_sm90a_halo(const Convolution& forward, DType dtype, const Dgrad& tensors,
                                   const DgradFactors& factors, void*, const LaunchContext& context) {
  GradientLauncher* const launch = dtype == DType::bf16 ? launch_gradient_halo_bf16 : launch_gradient_halo_fp16;
  const int sms = context.device->sm_count;
  for (int y = 0; y < gradient_phases(forward.y); ++y)
    for (int x = 0; x < gradient_phases(forward.x); ++x) {
      const auto [c, o] = gradient_launch(forward, y, x, tensors, factors);
      if (c.rows() == 0) continue;  // an image of one row or column has no odd ones
      if (const Status status = check_operands(c, o); !status.ok()) return status;
      const auto schedule = context.choice.empty() ? choose_halo(c, sms) : parse_halo_schedule(c, context.choice, sms);
      if (!schedule) return failure(StatusCode::invalid_argument, "convolution: no such schedule");
      if (const Status status = launch(c, o, *schedule, context); !status.ok()) return status;
    }
  return success();
}

}  // namespace noisefloor::convolution
