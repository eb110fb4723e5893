// What bounds a row under its roof.
#pragma once

#include <string>

namespace noisefloor {

// In files `memory:tensor_bf16`: memory, where arithmetic would be held to the ceiling tensor_bf16. Blank: the row has
// no place under a roof.
struct Bound {
  enum class By { nothing, memory, compute } by = By::nothing;
  std::string ceiling;  // of arithmetic, as ceilings.csv has it

  std::string text() const;
  static Bound parse(const std::string& text);  // throws std::runtime_error
  bool operator==(const Bound&) const = default;
};

}  // namespace noisefloor
