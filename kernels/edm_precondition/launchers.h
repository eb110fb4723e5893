// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {

Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

}  // namespace noisefloor::edm_precondition
