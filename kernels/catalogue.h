// Every op of noisefloor. Tests, benches and reports loop over it.
#pragma once

#include <span>

#include "kernels/core/op.h"

namespace noisefloor {

std::span<const Op> catalogue();
const Op* find_op(std::string_view name);  // null when there is none

}  // namespace noisefloor
