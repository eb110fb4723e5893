// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {

Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

}  // namespace noisefloor::elementwise
