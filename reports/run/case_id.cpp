#include "reports/run/case_id.h"

#include <stdexcept>
#include <vector>

namespace noisefloor {

std::string ProblemId::name() const {
  return op + "/" + problem + "/" + dtype;
}

std::string CaseId::name() const {
  return ProblemId::name() + "/" + variant;
}

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

}  // namespace noisefloor
