// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {

// The embedding and the hidden layer in fp32, [batch, channels] and [batch, hidden]; none without a perceptron.
std::size_t layers_workspace_bytes(const Problem&, DType, const DeviceInfo&);

inline constexpr std::int64_t kMaxPtxSharedBytes = 192 * 1024;  // ptx_sm90a: 8 rows of weights and of inputs

Launcher launch_host;
Launcher launch_naive;
Launcher launch_tiled;
Launcher launch_tensor_core_sm80;
Launcher launch_ptx_sm90a;

}  // namespace noisefloor::timestep_embedding
