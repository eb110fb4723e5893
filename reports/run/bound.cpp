#include "reports/run/bound.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace noisefloor {

constexpr std::string_view kMemory = "memory:", kCompute = "compute:";

std::string Bound::text() const {
  if (by == By::nothing) return "";
  return fmt::format("{}{}", by == By::memory ? kMemory : kCompute, ceiling);
}

Bound Bound::parse(const std::string& text) {
  if (text.empty()) return {};
  if (text.starts_with(kMemory)) return {By::memory, text.substr(kMemory.size())};
  if (text.starts_with(kCompute)) return {By::compute, text.substr(kCompute.size())};
  throw std::runtime_error(fmt::format("'{}' is neither {} nor {} with a ceiling's name", text, kMemory, kCompute));
}

}  // namespace noisefloor
