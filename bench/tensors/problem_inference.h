// Which problem of an op a set of tensors belongs to.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/unification.h"

namespace noisefloor {

// What messages tell a front end's user to do; those of the command line where nothing else is said.
struct Wording {
  const char* give = "give --problem its";  // and the fields that follow
  const char* given = "with the fields of --problem";
  const char* give_dtype = "give --dtype";
  bool random = true;  // --random makes a tensor that is missing
};

// The problem whose inputs are exactly those of `shapes`. `given` holds the fields that the user gave, which are kept.
// Of the problems that fit, the one that departs from the defaults in the fewest fields. Throws InvalidInput
//   - when none fits: with what would, were one tensor or one given field another;
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
