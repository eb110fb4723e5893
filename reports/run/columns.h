// What is known of each column of sweep.csv. The table is columns.def.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

// A line of that table.
struct ColumnInfo {
  enum class Type { text, number, count };
  enum Flag : unsigned { kNeeded = 1, kCounter = 2, kAboveZero = 4, kHead = 8, kWide = 16, kFromOne = 32, kShare = 64 };
  struct Shown {
    int place;          // among the report's main columns, from 1; 0: on a row's card alone
    const char* label;  // in the report's table; empty: made from the name
  };
  const char* name;
  Type type;
  const char* unit;
  Shown shown;
  unsigned flags;
  const char* description;

  bool text() const { return type == Type::text; }
  bool is(Flag flag) const { return (flags & flag) != 0; }
  static constexpr Shown card() { return {0, ""}; }
  static constexpr Shown table(int place, const char* label) { return {place, label}; }
  template <class Member>
  static constexpr Type kTypeOf = std::is_same_v<Member, Figure>                ? Type::number
                                  : std::is_same_v<Member, std::optional<long>> ? Type::count
                                                                                : Type::text;

  static const std::vector<ColumnInfo>& all() {
    static const std::vector<ColumnInfo> columns = {
#define NOISEFLOOR_CASE_COLUMN(name, ...) {#name, Type::text, __VA_ARGS__},
#define NOISEFLOOR_COLUMN(Member, name, ...) {#name, kTypeOf<Member>, __VA_ARGS__},
#include "reports/run/columns.def"
    };
    return columns;
  }
  using OldName = std::pair<const char*, const char*>;  // what a column was called, and its name
  static const std::vector<OldName>& old_names() {
    static const std::vector<OldName> names = {
#define NOISEFLOOR_CASE_COLUMN(...)
#define NOISEFLOOR_COLUMN(...)
#define NOISEFLOOR_OLD_NAME(old, name) {#old, #name},
#include "reports/run/columns.def"
    };
    return names;
  }
};

struct SweepColumn : ColumnInfo {
  std::string (*write)(const SweepRow& row);  // unquoted; blank: not measured
  // Blank text leaves what the row has. Throws std::runtime_error saying what is wrong with the text.
  void (*read)(const SweepColumn& column, SweepRow& row, const std::string& text);
  std::optional<double> (*number)(const SweepRow& row);  // nothing for texts, and where nothing was measured
  void (*fill)(SweepRow& row, double value);             // does nothing to texts
};

const std::vector<SweepColumn>& sweep_columns();
const SweepColumn* sweep_column(std::string_view name);  // null: there is none of that name
// Puts today's names into an older file's header (NOISEFLOOR_OLD_NAME), where it does not have them already.
void rename_old_columns(std::vector<std::string>& header);

// Every benchmark has every counter, because Google Benchmark adds repetitions up counter by counter: NaN is "not
// measured", and left out of what is written (bench/sweep/benchmark_output.h).
std::vector<std::pair<std::string, double>> counters_of(const SweepRow& row);

// docs/columns.md between its markers: the columns that are `wanted`.
std::string columns_markdown(const std::function<bool(const SweepColumn&)>& wanted);

}  // namespace noisefloor
