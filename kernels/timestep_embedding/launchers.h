// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {

// The embedding and the hidden layer in fp32, [batch, channels] and [batch, hidden]; none without a perceptron.
Definition::Variant::WorkspaceBytes layers_workspace_bytes;

inline constexpr std::int64_t kMaxPtxSharedBytes = 192 * 1024;  // ptx_sm90a: 8 rows of weights and of inputs

Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

}  // namespace noisefloor::timestep_embedding
