// Names in a sentence.
#pragma once

#include <string>
#include <vector>

namespace noisefloor {

// "a", "a or b", "a, b or c" with the conjunction "or".
inline std::string listed(const std::vector<std::string>& names, const char* conjunction) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? std::string(" ") + conjunction + " " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace noisefloor
