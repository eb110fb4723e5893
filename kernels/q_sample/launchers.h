// The launchers behind variants.cpp, each in the file of its name.
#pragma once

#include "kernels/q_sample/q_sample.h"

namespace noisefloor::q_sample {

Launcher launch_host;
Launcher launch_naive;

}  // namespace noisefloor::q_sample
