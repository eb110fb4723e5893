// The op on the host in float: a task makes some groups of an image (kernels/core/host_norm.h).
// Workspace, fp32: sums of dv and dv xh times 1 + scale, [n, 2, channels].
#include "kernels/core/host_norm.h"
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(p.n * 2 * p.channels) * sizeof(float);
}

Status launch_host(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                   const LaunchContext&) {
  auto* const sums = static_cast<float*>(scratch.workspace);
  const Tensors t = unpacked(p, dtype, tensors);
  each_host_norm_task(HostNorm<Tensors>{shape_of(p), dtype, p.affine_dtype(dtype), t, t.mean, t.rstd},
                      p.channels_per_group(), sums, [](auto& task) { task.write_dx(); });
  return success();
}

}  // namespace noisefloor::groupnorm_backward
