// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {

// The embedding and the hidden layer in fp32, [batch, channels] and [batch, hidden]; none without a perceptron.
std::size_t layers_workspace_bytes(const Problem&, DType, const DeviceInfo&);

Launcher launch_host;
Launcher launch_naive;

}  // namespace noisefloor::timestep_embedding
