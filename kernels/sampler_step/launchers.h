// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {

Launcher launch_host;
Launcher launch_naive;
Launcher launch_tiled;
Launcher launch_tensor_core_sm80;
Launcher launch_ptx_sm90a;

}  // namespace noisefloor::sampler_step
