// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/q_sample/q_sample.h"

namespace noisefloor::q_sample {

Launcher launch_host;
Launcher launch_naive;
Launcher launch_tiled;
Launcher launch_tensor_core_sm80;
Launcher launch_ptx_sm90a;

}  // namespace noisefloor::q_sample
