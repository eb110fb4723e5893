#include "bench/tensors/field_info.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace noisefloor {
namespace {

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// "name: 1 to 64 (default 3)", "name: none, silu (default none)"; the default is left out where there is none.
FieldInfo field_info(const std::string& line) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string::npos) throw std::logic_error("'" + line + "' is no line of FieldDescriber");
  FieldInfo field;
  field.name = line.substr(0, colon);
  std::string rest = line.substr(colon + 2);
  const std::string mark = " (default ";
  if (const std::size_t at = rest.rfind(mark); at != std::string::npos && rest.back() == ')') {
    field.fallback = rest.substr(at + mark.size(), rest.size() - at - mark.size() - 1);
    rest.resize(at);
  }
  if (const std::size_t to = rest.find(" to "); to != std::string::npos) {
    const auto low = whole_number(rest.substr(0, to)), high = whole_number(rest.substr(to + 4));
    if (!low || !high) return field;
    field.kind = FieldInfo::Kind::integer;
    field.low = *low;
    field.high = *high;
    return field;
  }
  field.kind = FieldInfo::Kind::choice;
  for (std::size_t begin = 0; begin <= rest.size();) {
    const std::size_t end = std::min(rest.find(", ", begin), rest.size());
    field.choices.push_back(rest.substr(begin, end - begin));
    begin = end + 2;
  }
  return field;
}

}  // namespace

std::vector<FieldInfo> field_infos(const Workload& op) {
  std::vector<FieldInfo> fields;
  for (const std::string& line : op.fields) fields.push_back(field_info(line));
  return fields;
}

}  // namespace noisefloor
