// noisefloor gate --resources: the kernels of a build against the recorded ones, with no GPU.
#pragma once

#include <string>

namespace noisefloor {

struct ResourcesArguments {
  std::string baseline;   // kernels.csv, or a folder that has one
  std::string candidate;  // a program or library with kernels in it; empty: this program
  bool accept = false, new_rows = false;
};

// The exit code. Throws where there is nothing to compare: no cuobjdump, no kernels, another compiler.
int gate_resources(const ResourcesArguments& arguments);

}  // namespace noisefloor
