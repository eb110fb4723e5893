// A problem for another program: every field, what it costs, how exact it must be, and its inputs, as one JSON object.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "kernels/core/op.h"

namespace noisefloor {

// {"op", "problem", "fields": {name: value, ...}, "dtypes": {name: {"flops", "bytes", "max_error", "l2_error"}},
//  "tensors": [{"name", "shape", "dtype", "role"}], "filled": {...}, "normal": {...}}
//
// Fields have their defaults too. Tensors are in the op's first dtype. `filled` has the values of inputs that the op
// fills itself, of tensors of up to `most_values` (null for an infinity), `normal` the mean and standard deviation of
// the random ones.
nlohmann::ordered_json problem_record(const Workload& workload, const AnyProblem& problem, std::int64_t most_values);

}  // namespace noisefloor
