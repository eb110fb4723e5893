#include "kernels/core/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace noisefloor {
namespace {

std::string format_real(double value) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);  // shortest text that reads back the same
  return {buffer, result.ptr};
}

template <class Names>
std::string join(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

std::vector<KeyValue> split_problem_text(std::string_view text) {
  constexpr std::size_t kMaxPairs = 64;  // far above any op's; every pair is compared with those before it
  std::vector<KeyValue> pairs;
  while (!text.empty()) {
    if (pairs.size() == kMaxPairs) throw InvalidInput("problem: over " + std::to_string(kMaxPairs) + " fields");
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      throw InvalidInput("problem: expected field=value, got '" + std::string(item) + "'");
    const std::string key(item.substr(0, equals));
    if (std::any_of(pairs.begin(), pairs.end(), [&](const KeyValue& pair) { return pair.key == key; }))
      throw InvalidInput("problem: field '" + key + "' is given twice");
    pairs.push_back({key, std::string(item.substr(equals + 1))});
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) throw InvalidInput("problem: ends with a comma");
  }
  return pairs;
}

std::string join_problem_text(std::span<const KeyValue> pairs) {
  std::string text;
  for (const KeyValue& pair : pairs) text += (text.empty() ? "" : ",") + pair.key + "=" + pair.value;
  return text;
}

const std::string* FieldReader::take(const char* name, bool required) {
  known_.push_back(name);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (pairs_[i].key != name) continue;
    used_[i] = true;
    return &pairs_[i].value;
  }
  if (required) throw InvalidInput("problem: field '" + std::string(name) + "' is missing");
  return nullptr;
}

void FieldReader::integer(const char* name, const char*, std::int64_t& value, std::int64_t low, std::int64_t high,
                          std::optional<std::int64_t> fallback) {
  const std::string* text = take(name, !fallback);
  if (text == nullptr) {
    value = *fallback;
    return;
  }
  const std::string range = std::to_string(low) + " to " + std::to_string(high);
  if (!parse_number(*text, value))
    throw InvalidInput("problem: field '" + std::string(name) + "' is '" + *text + "', not a whole number from " +
                       range);
  if (value < low || value > high)
    throw InvalidInput("problem: field '" + std::string(name) + "' is " + *text + ", outside " + range);
}

void FieldReader::real(const char* name, const char*, double& value, double low, double high,
                       std::optional<double> fallback) {
  const std::string* text = take(name, !fallback);
  if (text == nullptr) {
    value = *fallback;
    return;
  }
  const std::string range = format_real(low) + " to " + format_real(high);
  if (!parse_number(*text, value) || !std::isfinite(value))
    throw InvalidInput("problem: field '" + std::string(name) + "' is '" + *text + "', not a number from " + range);
  if (value < low || value > high)
    throw InvalidInput("problem: field '" + std::string(name) + "' is " + *text + ", outside " + range);
}

void FieldReader::choice(const char* name, const char*, int& value, std::span<const char* const> names,
                         std::optional<int> fallback) {
  const std::string* text = take(name, !fallback);
  if (text == nullptr) {
    value = *fallback;
    return;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (*text != names[i]) continue;
    value = static_cast<int>(i);
    return;
  }
  const std::vector<std::string> known(names.begin(), names.end());
  throw InvalidInput("problem: field '" + std::string(name) + "' is '" + *text + "', not one of " + join(names) +
                     did_you_mean(*text, known));
}

void FieldReader::require_all_used() const {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (used_[i]) continue;
    const std::string near = did_you_mean(pairs_[i].key, known_);
    throw InvalidInput("problem: unknown field '" + pairs_[i].key + "'" +
                       (near.empty() ? "; known: " + join(known_) : near));
  }
}

void FieldWriter::integer(const char* name, const char*, std::int64_t& value, std::int64_t, std::int64_t,
                          std::optional<std::int64_t> fallback) {
  if (defaults_ || fallback != value) values_.push_back({name, std::to_string(value)});
}

void FieldWriter::real(const char* name, const char*, double& value, double, double, std::optional<double> fallback) {
  if (defaults_ || fallback != value) values_.push_back({name, format_real(value)});
}

void FieldWriter::choice(const char* name, const char*, int& value, std::span<const char* const> names,
                         std::optional<int> fallback) {
  if (defaults_ || fallback != value) values_.push_back({name, names[static_cast<std::size_t>(value)]});
}

std::string FieldInfo::range() const {
  if (type == Type::choice) return join(choices);
  if (type == Type::real) return format_real(real_low) + " to " + format_real(real_high);
  return std::to_string(low) + " to " + std::to_string(high);
}

std::string FieldInfo::description() const {
  return meaning + " (" + range() + (fallback ? "; default " + *fallback : "") + ")";
}

const char* to_string(FieldInfo::Type type) {
  constexpr const char* kNames[] = {"integer", "real", "choice", "flag"};
  return kNames[static_cast<std::size_t>(type)];
}

FieldInfo& FieldCollector::add(FieldInfo::Type type, const char* name, const char* meaning) {
  FieldInfo& field = fields_.emplace_back();
  field.type = type;
  field.name = name;
  field.meaning = meaning;
  return field;
}

void FieldCollector::integer(const char* name, const char* meaning, std::int64_t&, std::int64_t low, std::int64_t high,
                             std::optional<std::int64_t> fallback) {
  FieldInfo& field = add(FieldInfo::Type::integer, name, meaning);
  field.low = low;
  field.high = high;
  if (fallback) field.fallback = std::to_string(*fallback);
}

void FieldCollector::real(const char* name, const char* meaning, double&, double low, double high,
                          std::optional<double> fallback) {
  FieldInfo& field = add(FieldInfo::Type::real, name, meaning);
  field.real_low = low;
  field.real_high = high;
  if (fallback) field.fallback = format_real(*fallback);
}

void FieldCollector::choice(const char* name, const char* meaning, int&, std::span<const char* const> names,
                            std::optional<int> fallback) {
  FieldInfo& field = add(FieldInfo::Type::choice, name, meaning);
  field.choices.assign(names.begin(), names.end());
  if (fallback) field.fallback = names[static_cast<std::size_t>(*fallback)];
}

void FieldCollector::flag(const char* name, const char* meaning, bool& value, bool fallback) {
  FieldVisitor::flag(name, meaning, value, fallback);
  fields_.back().type = FieldInfo::Type::flag;
  fields_.back().choices = {"0", "1"};
}

// Insertions, deletions, substitutions and swaps of neighbours that make one word the other.
static std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> distance((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return distance[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  return at(a.size(), b.size());
}

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    // At least as many edits as the lengths differ by; and a name that fills a file gets no table of its square.
    const std::size_t longer = std::max(name.size(), candidate.size()),
                      shorter = std::min(name.size(), candidate.size());
    if (longer - shorter >= best_distance) continue;
    if (const std::size_t distance = edit_distance(name, candidate); distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  auto nearest = nearest_name(name, candidates);
  // What lacks its end, as a network without its batch.
  const auto begins = [&](const std::string& candidate) { return candidate.starts_with(name); };
  if (const auto whole = std::ranges::find_if(candidates, begins);
      !nearest && !name.empty() && whole != candidates.end())
    nearest = *whole;
  return nearest ? "; did you mean '" + *nearest + "'?" : "";
}

}  // namespace noisefloor
