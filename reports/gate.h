// The gate: did a change make something slower? Reads two runs, decides row by row.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reports/compare.h"

namespace noisefloor {

enum class GateVerdict { regressed, ambiguous, improved, pass };  // worst first
const char* to_string(GateVerdict verdict);

// What a difference must exceed to be seen at all, and how sure it must be.
inline constexpr double kGateChange = 0.03;
inline constexpr double kGateMicroseconds = 0.5;  // what the timer resolves
inline constexpr double kGateAlpha = 0.01;        // for all rows of a comparison together

struct GateRow {
  RowChange change;  // its noises also know that of processes, and of --noise
  double p = 1;      // Mann-Whitney on the cold samples, Holm-corrected over the comparison's rows
  double p_cycles = 1;
  GateVerdict verdict = GateVerdict::pass;
  std::string reason;  // of an ambiguous one: which condition does not hold; of others what else a reader should know
};

// A pair that has no two times to compare.
struct GateGap {
  enum class Weight { fails, blocks, noted };
  RowPair rows;
  Weight weight;
  std::string what;  // "ok in the baseline, missing in the candidate"
};

struct GateResult {
  std::string device;
  std::vector<GateRow> rows;  // worst first
  std::vector<GateGap> gaps;  // heaviest first
  std::vector<TotalChange> totals;
  std::vector<std::string> differences;  // of machine and build
  double process_us = 0;                 // process noise that was assumed or measured
  bool of_host = false;                  // then it is also a fraction of the time
  double process_share = 0;
  bool process_measured = false;
  std::size_t untimed = 0;  // pairs that are the same and not ok on both sides

  std::size_t count(GateVerdict verdict) const;
  std::size_t count(GateGap::Weight weight) const;
  // 1 where a row regressed or broke, else 2 where a row cannot be compared, else 0.
  int exit_code() const;
};

struct GateOptions {
  PairOptions pairs;
  bool new_rows = false;  // rows that only the candidate has are noted, and do not block
};

// `noise`: more runs of the baseline's build. Throws std::runtime_error where nothing can be compared: runs of
// different devices, no row in common, no samples, a noise run of another build.
GateResult gate(const RunFiles& baseline, const RunFiles& candidate, std::span<const RunFiles> noise,
                const GateOptions& options);

}  // namespace noisefloor
