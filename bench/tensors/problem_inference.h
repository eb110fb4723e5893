// Which problem of an op a set of tensors belongs to, found from nothing but the op's own fields and tensors: values
// are tried until the shapes that `Op::tensors` gives are those of the tensors. So every op of the catalogue has it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor {

// Shapes by name. An empty optional: a tensor that is there, of whatever shape the problem gives it.
using KnownShapes = std::map<std::string, std::optional<std::vector<std::int64_t>>>;

// The problem whose inputs are exactly those of `shapes`. `given` holds the fields that the user gave, which are kept.
// A field that has a default and need not differ from it keeps it. Throws InvalidInput when no problem fits (with the
// differences to the nearest one), and when the shapes leave a field open that has no default, or fit several values of
// one that has: then it must be given.
AnyProblem infer_problem(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes);

}  // namespace noisefloor
