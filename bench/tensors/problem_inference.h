// Which problem of an op a set of tensors belongs to, found from nothing but the op's own fields and tensors: values
// are tried until the shapes that `Op::tensors` gives are those of the tensors. So every op of the catalogue has it.
#pragma once

#include <vector>

#include "bench/tensors/shape_fit.h"

namespace noisefloor {

// The problem whose inputs are exactly those of `shapes`. `given` holds the fields that the user gave, which are kept.
// Of the problems that fit, the one that departs from the defaults in the fewest fields. Throws InvalidInput
//   - when none fits: with the differences to the nearest one, and where a given field clashes, what it had to be;
//   - when several do, or a field that has no default could have another value, or one that has a default must differ
//     from it by an amount that no shape says: then the fields must be given, and the message names them.
AnyProblem infer_problem(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes,
                         const Wording& wording = {});

// The dtype in which the problem's tensors have the element types `types`, by name, as `name` prints them. Throws
// InvalidInput when none fits, with each tensor's type and the one that would; and when several do and `dtype` is none.
using KnownTypes = std::map<std::string, std::string>;
DType infer_dtype(const Workload& op, const AnyProblem& problem, std::optional<DType> dtype, const KnownTypes& types,
                  std::string_view (*name)(DType), const Wording& wording = {});

}  // namespace noisefloor
