// The launchers that variants.cpp puts in its table; each is defined in the file of its name.
#pragma once

#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

Status launch_host(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&);
std::size_t host_workspace_bytes(const Problem&, DType, const DeviceInfo&);

Status launch_naive(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&);

std::size_t tiled_workspace_bytes(const Problem&, DType, const DeviceInfo&);
Status launch_tiled(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&);

std::size_t tensor_core_sm80_workspace_bytes(const Problem&, DType, const DeviceInfo&);
Status launch_tensor_core_sm80(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&);

Status launch_ptx_sm90a(const Problem&, DType, const Tensors&, const Scratch&, const LaunchContext&);

}  // namespace noisefloor::groupnorm
