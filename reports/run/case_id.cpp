#include "reports/run/case_id.h"

#include <regex>
#include <stdexcept>
#include <vector>

#include "reports/run/files.h"

namespace noisefloor {

CaseId CaseId::parse(std::string_view text) {
  std::vector<std::string> parts;
  for (std::string_view rest = text;;) {
    const std::size_t slash = rest.find('/');
    parts.emplace_back(rest.substr(0, slash));
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  bool whole = parts.size() == 4;
  for (const std::string& part : parts) whole = whole && !part.empty();
  if (!whole) throw std::runtime_error("'" + std::string(text) + "' is not a case: op/problem/dtype/variant");
  return {{parts[0], parts[1], parts[2]}, parts[3]};
}

NameFilter name_filter(const std::string& option, const std::string& expression) {
  if (expression.empty()) return [](const std::string&) { return true; };
  // libstdc++ parses by recursion, and looks ahead anew at each letter: within each other, such do not end.
  constexpr std::size_t kLongest = 1000;
  std::size_t ahead = 0;
  for (std::size_t at = 0; (at = expression.find("(?", at)) != std::string::npos; ++at)
    if (at + 2 < expression.size() && expression[at + 2] != ':') ++ahead;
  if (expression.size() > kLongest || ahead > 1)
    throw failure("{}: the regular expression has {} characters and {} look-aheads; at most {} and 1 are taken", option,
                  expression.size(), ahead, kLongest);
  try {
    // libstdc++'s executor that follows all ways at once: neither time nor stack grows beyond the length of a name. A
    // search begins again at each letter, so the whole name is matched.
    constexpr auto kFlags = std::regex::ECMAScript | std::regex::nosubs | std::regex_constants::__polynomial;
    (void)std::regex(expression, kFlags);  // "a)(b" is none, although it would be between these parentheses
    const std::regex pattern("[^]*(?:" + expression + ")[^]*", kFlags);
    return [pattern](const std::string& name) { return std::regex_match(name, pattern); };
  } catch (const std::regex_error& error) {
    throw failure("{}: '{}' is not a regular expression (ECMAScript's, no back-references): {}", option, expression,
                  error.what());
  }
}

}  // namespace noisefloor
