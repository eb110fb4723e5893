// What keeps a set of tensors from being the inputs of a problem, in words.
#pragma once

#include <string>

#include "bench/tensors/shape_fit.h"

namespace noisefloor {

struct Misfit {
  std::string problem;      // the nearest, as text
  std::string differences;  // each tensor with its shape, the one that would fit, and the fields that decide it
};

// Of a search that met problems, none of which fits.
Misfit nearest_misfit(const Workload& op, const KnownShapes& shapes, ShapeFit& fit);

}  // namespace noisefloor
