#include "kernels/core/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace noisefloor {

std::string format_real(double value) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}

namespace {

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

void refuse(const std::string& message) {
  throw InvalidInput("problem: " + message);
}

std::vector<KeyValue> split_problem_text(std::string_view text) {
  constexpr std::size_t kMaxPairs = 64;  // far above any op's; every pair is compared with those before it
  std::vector<KeyValue> pairs;
  while (!text.empty()) {
    if (pairs.size() == kMaxPairs) refuse("over " + std::to_string(kMaxPairs) + " fields");
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      refuse("expected field=value, got '" + std::string(item) + "'");
    const std::string key(item.substr(0, equals));
    if (std::any_of(pairs.begin(), pairs.end(), [&](const KeyValue& pair) { return pair.key == key; }))
      refuse("field '" + key + "' is given twice");
    pairs.push_back({key, std::string(item.substr(equals + 1))});
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) refuse("ends with a comma");
  }
  return pairs;
}

std::string join_problem_text(std::span<const KeyValue> pairs) {
  std::string text;
  for (const KeyValue& pair : pairs) text += (text.empty() ? "" : ",") + pair.key + "=" + pair.value;
  return text;
}

void Field::take_fallback() {
  integer = fallback.value_or(0);
  real = real_fallback.value_or(0);
}

std::string Field::text() const {
  if (type == Type::choice) return names[static_cast<std::size_t>(integer)];
  return type == Type::real ? format_real(real) : std::to_string(integer);
}

std::string Field::range() const {
  if (type == Type::choice) return join(names);
  if (type == Type::real) return format_real(real_low) + " to " + format_real(real_high);
  return std::to_string(low) + " to " + std::to_string(high);
}

void Field::parse(const std::string& given) {
  const std::string is = "field '" + std::string(name) + "' is ";
  if (type == Type::choice) {
    const auto found = std::ranges::find(names, given, [](const char* one) { return std::string_view(one); });
    if (found == names.end())
      refuse(is + "'" + given + "', not one of " + range() +
             did_you_mean(given, std::vector<std::string>(names.begin(), names.end())));
    integer = found - names.begin();
    return;
  }
  const bool whole = type != Type::real;
  if (!(whole ? parse_number(given, integer) : parse_number(given, real) && std::isfinite(real)))
    refuse(is + "'" + given + "', not a " + (whole ? "whole " : "") + "number from " + range());
  if (whole ? integer < low || integer > high : real < real_low || real > real_high)
    refuse(is + given + ", outside " + range());
}

void FieldReader::visit(Field& field) {
  known_.emplace_back(field.name);
  const auto pair = std::ranges::find(pairs_, known_.back(), &KeyValue::key);
  if (pair != pairs_.end()) {
    used_[static_cast<std::size_t>(pair - pairs_.begin())] = true;
    field.parse(pair->value);
  } else if (field.has_fallback()) {
    field.take_fallback();
  } else {
    refuse("field '" + known_.back() + "' is missing");
  }
}

void FieldReader::require_all_used() const {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (used_[i]) continue;
    const std::string near = did_you_mean(pairs_[i].key, known_);
    refuse("unknown field '" + pairs_[i].key + "'" + (near.empty() ? "; known: " + join(known_) : near));
  }
}

FieldInfo::FieldInfo(Field field)
    : type(field.type),
      name(field.name),
      meaning(field.meaning),
      low(field.low),
      high(field.high),
      real_low(field.real_low),
      real_high(field.real_high),
      choices(field.names.begin(), field.names.end()),
      range_(field.range()) {
  if (type == Type::flag) choices = {"0", "1"};
  if (!field.has_fallback()) return;
  field.take_fallback();
  fallback = field.text();
}

std::string FieldInfo::description() const {
  return meaning + " (" + range() + (fallback ? "; default " + *fallback : "") + ")";
}

const char* to_string(FieldInfo::Type type) {
  constexpr const char* kNames[] = {"integer", "real", "choice", "flag"};
  return kNames[static_cast<std::size_t>(type)];
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
