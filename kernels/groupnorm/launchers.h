// The launchers that variants.cpp puts in its table; each is defined in the file of its name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

struct ClusterPlan;  // cluster_plan.h

// With `shift` where it stands in a packed tensor: behind the scale of the same image. Rows of either are
// scale_shift_stride apart.
inline Tensors unpacked(const Problem& p, DType dtype, Tensors t) {
  if (p.packed)
    t.shift = static_cast<const std::byte*>(t.scale) + p.channels * static_cast<std::int64_t>(size_of(dtype));
  return t;
}

Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a,
    launch_ptx_sm90a_grid;
Definition::Variant::WorkspaceBytes host_workspace_bytes, tiled_workspace_bytes, tensor_core_sm80_workspace_bytes,
    ptx_sm90a_grid_workspace_bytes;

// ptx_sm90a by a plan of the caller's, which make_cluster_plan made for this problem: for timing plans.
Status launch_cluster_plan(const Problem&, DType, const Tensors&, const ClusterPlan&, const LaunchContext&);

}  // namespace noisefloor::groupnorm
