#include "bench/sweep/command_line.h"

#include <algorithm>

namespace noisefloor {

std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         std::initializer_list<std::string_view> options,
                                         std::initializer_list<std::string_view> flags) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = std::string_view(arguments[i]).substr(0, arguments[i].find('='));
    if (std::ranges::count(options, name) > 0) {
      if (name == arguments[i]) ++i;  // its value is the next
    } else if (std::ranges::count(flags, std::string_view(arguments[i])) == 0) {
      kept.push_back(arguments[i]);
    }
  }
  return kept;
}

}  // namespace noisefloor
