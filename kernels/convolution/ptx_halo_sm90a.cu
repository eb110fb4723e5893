// The launcher of ptx_sm90a_halo (its kernel: ptx_halo.cuh).
//
// Source: original.
#include "kernels/convolution/halo.h"

namespace noisefloor::convolution {

using HaloLauncher = Status(const Convolution&, const Operands&, const Schedule&, const LaunchContext&);
HaloLauncher launch_halo_bf16, launch_halo_fp16, launch_halo_fused_bf16, launch_halo_fused_fp16;

Status launch_ptx_sm90a_halo_scheduled(const Convolution& c, DType dtype, const Operands& o, const Schedule& schedule,
                                       const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  if (!can_split_halo(kHaloTiles[static_cast<std::size_t>(schedule.tile)], schedule.splits))
    return failure(StatusCode::invalid_argument, "convolution: this tile cannot be split so");
  const bool fused = c.norm != Norm::none || c.stats;
  HaloLauncher* const launch = dtype == DType::bf16 ? (fused ? launch_halo_fused_bf16 : launch_halo_bf16)
                                                    : (fused ? launch_halo_fused_fp16 : launch_halo_fp16);
  return launch(c, o, schedule, context);
}

Status launch_ptx_sm90a_halo(const Convolution& c, DType dtype, const Operands& o, const Scratch&,
                             const LaunchContext& context) {
  return launch_ptx_sm90a_halo_scheduled(c, dtype, o, choose_halo(c, context.device->sm_count), context);
}

Status launch_ptx_sm90a_halo_choice(const Convolution& c, DType dtype, const Operands& o, const Scratch&,
                                    const LaunchContext& context, std::string_view choice) {
  const auto schedule = parse_halo_schedule(c, choice, context.device->sm_count);
  if (!schedule) return failure(StatusCode::invalid_argument, "convolution: no such schedule");
  return launch_ptx_sm90a_halo_scheduled(c, dtype, o, *schedule, context);
}

}  // namespace noisefloor::convolution
