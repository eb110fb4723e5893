// Two runs row by row: which rows belong together, how far apart their times are, and what a forward pass of each
// network takes on either side.
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "reports/roofline.h"
#include "reports/run/run_files.h"

namespace noisefloor {

struct PairOptions {
  std::string variant_a, variant_b;  // both empty: each with its own namesake; else this one against that one
  std::optional<std::regex> filter;  // searched for in "op/problem/dtype/variant"
};

struct RowPair {
  const SweepRow* a = nullptr;  // either may be missing, not both
  const SweepRow* b = nullptr;
};
// In the order of `a`, then what only `b` has. Throws std::runtime_error where a run has none of a named variant, or
// the filter leaves nothing of either.
std::vector<RowPair> pair_rows(const RunFiles& a, const RunFiles& b, const PairOptions& options);

// One pair that is `ok` on both sides. Times are medians, changes b over a minus 1.
struct RowChange {
  RowPair rows;
  double a_us = 0, b_us = 0;  // cold
  double change = 0;
  std::optional<double> a_warm_us, b_warm_us, warm_change;
  // Of the cold samples in SM cycles (time x clock of the sample's batch), where both runs know the clock.
  std::optional<double> cycle_change;
  double noise = 0;        // relative, of batches
  double cycle_noise = 0;  // the same of cycles
};
RowChange row_change(const RunFiles& a, const RunFiles& b, const RowPair& pair);

// Cold samples in cycles: by each batch's clock, else by the row's; empty where neither is known.
std::vector<double> cold_cycles(const SweepRow& row, const RowSamples& samples);

struct TotalChange {
  std::string network, op, dtype, choice;
  NetworkTotal a, b;  // `problems` of 0: that side has nothing of it
};
// "own best" of each network, op and dtype, or the two variants of `options`.
std::vector<TotalChange> total_changes(const RunFiles& a, const RunFiles& b, const PairOptions& options);

// What differs between the machines and builds, one line each ("driver: 580.1 and 590.2").
std::vector<std::string> environment_differences(const RunFiles& a, const RunFiles& b);

}  // namespace noisefloor
