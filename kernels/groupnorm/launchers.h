// The launchers that variants.cpp puts in its table; each is defined in the file of its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

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

// ptx_sm90a where statistics are given and coefficients wanted (ptx_finish_sm90a.cu).
Status launch_finish_sm90a(const Problem&, DType, const Tensors&, const LaunchContext&);

// ptx_sm90a by one of cluster_choices (cluster_plan.h), for the tuner.
Status launch_cluster_choice(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&,
                             std::string_view choice);

}  // namespace noisefloor::groupnorm
