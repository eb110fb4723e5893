// The launcher of ptx_sm90a_halo (its kernel: ptx_halo.cuh).
//
// Source: original.
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

}  // namespace noisefloor::convolution
