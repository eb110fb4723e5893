// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {

Launcher launch_host;
Launcher launch_naive;
Launcher launch_tiled;
Launcher launch_tensor_core_sm80;
Launcher launch_ptx_sm90a;

}  // namespace noisefloor::elementwise
