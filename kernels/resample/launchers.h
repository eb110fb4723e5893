// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/resample/resample.h"

namespace noisefloor::resample {

Launcher launch_host;
Launcher launch_naive;

}  // namespace noisefloor::resample
