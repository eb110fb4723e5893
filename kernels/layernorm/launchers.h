// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/layernorm/layernorm.h"

namespace noisefloor::layernorm {

Launcher launch_host;
Launcher launch_naive;

}  // namespace noisefloor::layernorm
