// Names in a sentence.
#pragma once

#include <algorithm>
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

// A line each, indented; of very many the first ones, and how many there are.
inline std::string first_lines(const std::vector<std::string>& lines, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < most; ++i) text += (i == 0 ? "" : "\n  ") + lines[i];
  if (lines.size() > most)
    text += "\n  and " + std::to_string(lines.size() - most) + " more, " + std::to_string(lines.size()) + " in all";
  return text;
}

// "a,b" -> {"a", "b"}
inline std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  while (begin <= text.size() && !text.empty()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace noisefloor
