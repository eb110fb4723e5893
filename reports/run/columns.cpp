#include "reports/run/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace noisefloor {
namespace {

template <class Number>
Number parse_number(const std::string& text) {
  Number value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw std::runtime_error(fmt::format("'{}' is not a {}number", text, std::is_integral_v<Number> ? "whole " : ""));
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(value)) throw std::runtime_error(fmt::format("'{}' is not a finite number", text));
  return value;
}

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(Outcome value) {
  return to_string(value);
}
std::string text_of(const Bound& value) {
  return value.text();
}
std::string text_of(const Figure& value) {
  return value && std::isfinite(*value) ? fmt::format("{:.6g}", *value) : std::string();
}
std::string text_of(const std::optional<long>& value) {
  return value ? std::to_string(*value) : std::string();
}

void take(std::string& member, const std::string& text) {
  member = text;
}
void take(Outcome& member, const std::string& text) {
  const auto outcome = parse_outcome(text);
  if (!outcome) throw std::runtime_error(fmt::format("'{}' is not a status", text));
  member = *outcome;
}
void take(Bound& member, const std::string& text) {
  member = Bound::parse(text);
}
void take(Figure& member, const std::string& text) {
  if (!text.empty()) member = parse_number<double>(text);
}
template <class Number>
void take(std::optional<Number>& member, const std::string& text) {
  if (!text.empty()) member = parse_number<Number>(text);
}

template <auto Member>
using MemberType = std::remove_cvref_t<decltype(std::declval<SweepRow>().*Member)>;

template <auto Member>
constexpr bool kIsText = std::is_same_v<MemberType<Member>, std::string> ||
                         std::is_same_v<MemberType<Member>, Outcome> || std::is_same_v<MemberType<Member>, Bound>;

template <auto Member>
std::optional<double> number_of(const SweepRow& row) {
  if constexpr (!kIsText<Member>)
    return row.*Member ? std::optional(static_cast<double>(*(row.*Member))) : std::nullopt;
  else
    return std::nullopt;
}

template <auto Member>
void read(const SweepColumn& column, SweepRow& row, const std::string& text) {
  take(row.*Member, text);
  if (column.above_zero && number_of<Member>(row) && !(*number_of<Member>(row) > 0))
    throw std::runtime_error(fmt::format("'{}' is not a time above 0", text));
  if (number_of<Member>(row) && *number_of<Member>(row) < 0)  // nothing that is measured or counted here
    throw std::runtime_error(fmt::format("'{}' is negative", text));
  if (column.from_one && number_of<Member>(row) && *number_of<Member>(row) < 1)
    throw std::runtime_error(fmt::format("'{}' is not a number from 1", text));
  if (column.share && number_of<Member>(row) && *number_of<Member>(row) > 100)
    throw std::runtime_error(fmt::format("'{}' is not a percentage from 0 to 100", text));
}
template <>
void read<&SweepRow::networks>(const SweepColumn&, SweepRow& row, const std::string& text) {
  (void)parse_networks(text);
  row.networks = text;
}

template <auto Member>
void fill([[maybe_unused]] SweepRow& row, [[maybe_unused]] double value) {
  if constexpr (!kIsText<Member>) row.*Member = static_cast<typename MemberType<Member>::value_type>(value);
}

enum Flag : unsigned { kNeeded = 1, kCounter = 2, kAboveZero = 4, kHead = 8, kWide = 16, kFromOne = 32, kShare = 64 };
constexpr SweepColumn::Shown card() {
  return {0, ""};
}
constexpr SweepColumn::Shown table(int place, const char* label) {
  return {place, label};
}

template <auto Member>
SweepColumn column(const char* name, const char* unit, SweepColumn::Shown shown, unsigned flags,
                   const char* description) {
  const auto has = [flags](Flag flag) { return (flags & flag) != 0; };
  return {name,
          unit,
          description,
          shown,
          kIsText<Member>,
          has(kNeeded),
          has(kCounter),
          has(kAboveZero),
          has(kFromOne),
          has(kShare),
          has(kHead),
          has(kWide),
          [](const SweepRow& row) { return text_of(row.*Member); },
          read<Member>,
          number_of<Member>,
          fill<Member>};
}

}  // namespace

const std::vector<SweepColumn>& sweep_columns() {
  static const std::vector<SweepColumn> all = {
#define NOISEFLOOR_CASE_COLUMN(name, ...) column<&SweepRow::name>(#name, __VA_ARGS__),
#define NOISEFLOOR_COLUMN(Type, name, ...) column<&SweepRow::name>(#name, __VA_ARGS__),
#include "reports/run/columns.def"
  };
  return all;
}

void rename_old_columns(std::vector<std::string>& header) {
  constexpr std::pair<const char*, const char*> kOldNames[] = {
#define NOISEFLOOR_CASE_COLUMN(...)
#define NOISEFLOOR_COLUMN(...)
#define NOISEFLOOR_OLD_NAME(old, name) {#old, #name},
#include "reports/run/columns.def"
  };
  const auto is_column = [](std::string_view name) {
    return std::ranges::any_of(sweep_columns(), [&](const SweepColumn& column) { return column.name == name; });
  };
  for (const auto& [old, name] : kOldNames) {
    const auto found = std::ranges::find(header, old);
    if (found != header.end() && is_column(name) && !std::ranges::count(header, name)) *found = name;
  }
}

std::vector<std::pair<std::string, double>> counters_of(const SweepRow& row) {
  std::vector<std::pair<std::string, double>> counters;
  for (const SweepColumn& column : sweep_columns())
    if (column.counter)
      counters.emplace_back(column.name, column.number(row).value_or(std::numeric_limits<double>::quiet_NaN()));
  return counters;
}

std::string columns_markdown(const std::function<bool(const SweepColumn&)>& wanted) {
  std::string text = "| column | unit | what it is | counter |\n|---|---|---|---|\n";
  for (const SweepColumn& column : sweep_columns())
    if (wanted(column))
      text += fmt::format("| `{}` | {} | {} | {} |\n", column.name, column.unit, column.description,
                          column.counter ? "yes" : "");
  return text;
}

}  // namespace noisefloor
