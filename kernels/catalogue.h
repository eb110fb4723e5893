// Every op of noisefloor. Tests, benches and reports loop over it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "kernels/core/op.h"

namespace noisefloor {

std::span<const Op> catalogue();
const Op* find_op(std::string_view name);  // null when there is none

// A problem that a variant of one op leaves to another: a 1x1 convolution is a matrix product (ptx_sm90a_pointwise).
struct HandedProblem {
  std::string op, text;
};
std::optional<HandedProblem> handed_on(std::string_view op, const AnyProblem& problem, DType dtype);

}  // namespace noisefloor
