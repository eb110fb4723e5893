// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {

Launcher launch_host;
Launcher launch_naive;
Launcher launch_tiled;
Launcher launch_tensor_core_sm80;
Launcher launch_ptx_sm90a;

}  // namespace noisefloor::edm_precondition
