// What is known of each column of sweep.csv. The table is columns.def.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

struct SweepColumn {
  struct Shown {
    int place;          // among the report's main columns, from 1; 0: on a row's card alone
    const char* label;  // in the report's table; empty: made from the name
  };
  const char *name, *unit, *description;
  Shown shown;
  bool text, needed, counter, above_zero, from_one, share, head, wide;
  std::string (*write)(const SweepRow& row);  // unquoted; blank: not measured
  // Blank text leaves what the row has. Throws std::runtime_error saying what is wrong with the text.
  void (*read)(const SweepColumn& column, SweepRow& row, const std::string& text);
  std::optional<double> (*number)(const SweepRow& row);  // nothing for texts, and where nothing was measured
  void (*fill)(SweepRow& row, double value);             // does nothing to texts
};

const std::vector<SweepColumn>& sweep_columns();
// Puts today's names into an older file's header (NOISEFLOOR_OLD_NAME), where it does not have them already.
void rename_old_columns(std::vector<std::string>& header);

// Every benchmark has every counter, because Google Benchmark adds repetitions up counter by counter: NaN is "not
// measured", and left out of what is written (bench/sweep/benchmark_output.h).
std::vector<std::pair<std::string, double>> counters_of(const SweepRow& row);

// docs/columns.md between its markers: the columns that are `wanted`.
std::string columns_markdown(const std::function<bool(const SweepColumn&)>& wanted);

}  // namespace noisefloor
