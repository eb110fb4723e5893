// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {

Launcher launch_host;
Launcher launch_naive;

}  // namespace noisefloor::elementwise
