// The constants of the products' model (product::Sm90aCosts) as a list: what a fit may change, and how far.
#pragma once

#include <span>
#include <string>

#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::fit {

// A fit stays within what hardware of this kind could be: a constant that the timings say little of runs off otherwise.
struct Constant {
  const char* name;
  double product::Sm90aCosts::*place;
  double least, most;
};
std::span<const Constant> constants();  // in the order of the struct

// To three significant digits: what a fit tries.
double rounded(double value);

// As they stand in a schedule.cpp: ".costs = {...}". One that is 0 is not named.
std::string source_text(const product::Sm90aCosts& costs);

}  // namespace noisefloor::fit
