// The gate: did a change make something slower? Reads two runs, decides row by row.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/gate/compare.h"
#include "reports/gate/launches.h"
#include "reports/gate/verdict.h"

namespace noisefloor {

struct GateRow {
  RowChange change;  // its noises also know the spread between processes
  PhaseVerdict cold;
  std::optional<PhaseVerdict> warm;  // where both runs have serial warm times
  GateVerdict verdict = GateVerdict::pass;
  std::vector<Phase> by;  // the phases that have this verdict; empty where all pass
  std::string reason;     // which condition does not hold; of others what else a reader should know

  const PhaseVerdict& of(Phase phase) const { return phase == Phase::warm ? *warm : cold; }
  const PhaseChange& change_of(Phase phase) const { return phase == Phase::warm ? *change.warm : change.cold; }
  double slowdown() const;  // the largest change among those phases, else among all
};

// A pair that has no two times to compare.
struct GateGap {
  enum class Weight { fails, blocks, noted };
  RowPair rows;
  Weight weight;
  std::string what;  // "ok in the baseline, missing in the candidate"
};

struct GateOptions {
  PairOptions pairs;
  bool new_rows = false;  // rows that only the candidate has are noted, and do not block
  bool strict = false;    // an ambiguous row that is slower by more than kStrictChange fails
  bool launches = false;  // a change of what a row of ours launches fails
};
inline constexpr double kStrictChange = 0.05;

struct GateResult {
  std::string device;
  std::vector<GateRow> rows;  // worst first
  std::vector<GateGap> gaps;  // heaviest first
  std::vector<TotalChange> totals;
  LaunchChanges launches;
  std::vector<std::string> differences;  // of machine and build
  std::string spread;                    // where that between processes is from
  std::size_t cold_alone = 0;            // rows without serial warm times
  std::size_t untimed = 0;               // pairs that are the same and not ok on both sides
  bool strict = false, gates_launches = false;

  std::size_t count(GateVerdict verdict) const;
  std::size_t count(GateGap::Weight weight) const;
  std::size_t much_slower_ambiguous() const;  // by more than kStrictChange
  // 1 where a row regressed or broke, or what was asked for beside is so, else 2 where a row cannot be compared, else
  // 0.
  int exit_code() const;
};

// `noise`: more runs of the baseline's build. Without any the spread between processes is that of the file beside the
// baseline, of the recorded GPU, or assumed. Throws std::runtime_error where nothing can be compared: runs of different
// devices, no row in common, no samples, a noise run of another build, no launches known on both sides to gate.
GateResult gate(const RunFiles& baseline, const RunFiles& candidate, std::span<const RunFiles> noise,
                const GateOptions& options);

}  // namespace noisefloor
