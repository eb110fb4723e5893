// Two runs row by row: which rows belong together, how far apart their times are, and what a forward pass of each
// network takes on either side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/run/run_files.h"
#include "reports/totals/totals.h"

namespace noisefloor {

struct RowPairing {
  std::string variant_a, variant_b;  // both empty: each with its own namesake; else this one against that one
  NameFilter filter;                 // of "op/problem/dtype/variant"; none: all
};

struct RowPair {
  const SweepRow* a = nullptr;  // either may be missing, not both
  const SweepRow* b = nullptr;

  const SweepRow& named() const { return a != nullptr ? *a : *b; }
};
// In the order of `a`, then what only `b` has. Throws std::runtime_error where a run has none of a named variant, or
// the filter leaves nothing of either.
std::vector<RowPair> pair_rows(const RunFiles& a, const RunFiles& b, const RowPairing& options);

// What is compared of a row: launches one behind the other with ordinary edges, and launches that find nothing in
// cache.
enum class Phase { warm, cold };
const char* to_string(Phase phase);

struct PhaseSamples {
  std::vector<double> us;
  std::vector<std::size_t> batches;
  std::vector<double> cycles;  // time x clock of its batch, else of the row; empty where neither is known
  std::size_t slots = 1;       // of its buffers: batch i is of slot i, modulo their number
};
// Nothing where the row has no warm times with ordinary edges (an older folder). Throws as RunFiles::samples_of().
std::optional<PhaseSamples> phase_samples(const RunFiles& run, const SweepRow& row, Phase phase);

// Medians, and changes b over a minus 1.
struct PhaseChange {
  double a_us = 0, b_us = 0, change = 0;
  std::optional<double> cycle_change;  // where both runs know the clock
};

// One pair that is `ok` on both sides. `warm` is there where both runs have it.
struct RowChange {
  RowPair rows;
  PhaseChange cold;
  std::optional<PhaseChange> warm;
};
RowChange row_change(const RunFiles& a, const RunFiles& b, const RowPair& pair);

struct TotalChange {
  std::string network, op, dtype, choice;
  NetworkTotal a, b;  // `problems` of 0: that side has nothing of it
};
// "own best" of each network, op and dtype, or the two variants of `options`.
std::vector<TotalChange> total_changes(const RunFiles& a, const RunFiles& b, const RowPairing& options);

// Whether the runs are one, or one is a copy of the other: of which a few rows may have been measured again, and rows
// of a coarse clock are alike by chance.
bool same_samples(const RunFiles& a, const RunFiles& b);

// What differs between the machines and builds, one line each ("driver: 580.1 and 590.2").
std::vector<std::string> environment_differences(const RunFiles& a, const RunFiles& b);

}  // namespace noisefloor
