// The fields of an op as data, for code that looks for their values: read from the lines of `Op::fields`, whose form
// FieldDescriber fixes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor {

struct FieldInfo {
  enum class Kind { integer, real, choice } kind = Kind::real;
  std::string name;
  std::int64_t low = 0, high = 0;       // integers
  std::vector<std::string> choices;     // choices
  std::optional<std::string> fallback;  // its default
};

// In the order of the op. A real whose range has whole ends is taken for an integer: the text does not tell them apart.
std::vector<FieldInfo> field_infos(const Workload& op);

}  // namespace noisefloor
