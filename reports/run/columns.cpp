#include "reports/run/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

template <class Number>
Number require_number(const std::string& text) {
  const auto value = parse_number<Number>(text);
  if (!value) throw failure("'{}' is not a {}number", text, std::is_integral_v<Number> ? "whole " : "");
  if (!std::isfinite(static_cast<double>(*value))) throw failure("'{}' is not a finite number", text);
  return *value;
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
  if (!outcome) throw failure("'{}' is not a status", text);
  member = *outcome;
}
void take(Bound& member, const std::string& text) {
  member = Bound::parse(text);
}
template <class Number>
void take(std::optional<Number>& member, const std::string& text) {
  if (!text.empty()) member = require_number<Number>(text);
}

template <auto Member>
using MemberType = std::remove_cvref_t<decltype(std::declval<SweepRow>().*Member)>;

template <auto Member>
constexpr bool kIsText = ColumnInfo::kTypeOf<MemberType<Member>> == ColumnInfo::Type::text;

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
  const auto number = number_of<Member>(row);
  const auto refuse_if = [&](bool wrong, const char* what) {
    if (wrong) throw failure("'{}' is {}", text, what);
  };
  if (!number) return;
  refuse_if(column.is(ColumnInfo::kAboveZero) && !(*number > 0), "not a time above 0");
  refuse_if(*number < 0, "negative");  // nothing that is measured or counted here
  refuse_if(column.is(ColumnInfo::kFromOne) && *number < 1, "not a number from 1");
  refuse_if(column.is(ColumnInfo::kShare) && *number > 100, "not a percentage from 0 to 100");
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

template <auto Member>
SweepColumn column(const ColumnInfo& info) {
  return {info, [](const SweepRow& row) { return text_of(row.*Member); }, read<Member>, number_of<Member>,
          fill<Member>};
}

}  // namespace

const std::vector<SweepColumn>& sweep_columns() {
  static const std::vector<SweepColumn> all = [] {
    auto next = ColumnInfo::all().begin();
    return std::vector<SweepColumn>{
#define NOISEFLOOR_CASE_COLUMN(name, ...) column<&SweepRow::name>(*next++),
#define NOISEFLOOR_COLUMN(Member, name, ...) column<&SweepRow::name>(*next++),
#include "reports/run/columns.def"
    };
  }();
  return all;
}

const SweepColumn* sweep_column(std::string_view name) {
  for (const SweepColumn& column : sweep_columns())
    if (column.name == name) return &column;
  return nullptr;
}

void rename_old_columns(std::vector<std::string>& header) {
  for (const auto& [old, name] : ColumnInfo::old_names()) {
    const auto found = std::ranges::find(header, old);
    if (found != header.end() && sweep_column(name) != nullptr && !std::ranges::count(header, name)) *found = name;
  }
}

std::vector<std::pair<std::string, double>> counters_of(const SweepRow& row) {
  std::vector<std::pair<std::string, double>> counters;
  for (const SweepColumn& column : sweep_columns())
    if (column.is(ColumnInfo::kCounter))
      counters.emplace_back(column.name, column.number(row).value_or(std::numeric_limits<double>::quiet_NaN()));
  return counters;
}

std::string columns_markdown(const std::function<bool(const SweepColumn&)>& wanted) {
  std::string text = "| column | unit | what it is | counter |\n|---|---|---|---|\n";
  for (const SweepColumn& column : sweep_columns())
    if (wanted(column))
      text += fmt::format("| `{}` | {} | {} | {} |\n", column.name, column.unit, column.description,
                          column.is(ColumnInfo::kCounter) ? "yes" : "");
  return text;
}

}  // namespace noisefloor
