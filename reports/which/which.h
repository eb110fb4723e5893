// Which variant of a problem a run found fastest, and how it is called.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/run/pair_ratio.h"
#include "reports/run/run_files.h"
#include "reports/run/statistics.h"
#include "reports/totals/text_tables.h"

namespace noisefloor {

struct RankedRow {
  const SweepRow* row;
  std::optional<Interval> warm = {};  // of its median, from the raw samples; none: the folder lacks them
  Ratio over_first = {1, 1, 1};       // of its warm time over the first's; holds 1 where they are equal
  bool paired = false;                // the two were timed in turns
};

// The rows of a problem that have a warm time, by that. The first is lossy only where all are, and a comparison in
// turns decides it before times do. Apart from such a comparison, intervals that overlap and times within kAlike are
// equal. `run` must outlive what is returned.
std::vector<RankedRow> rank_rows(const RunFiles& run, const ProblemId& id);

// How a user calls it. `inputs`: the tensors that the op's functions take, by name.
std::vector<std::string> calls_of(const SweepRow& row, const std::vector<std::string>& inputs);

// The answer, also of what was refused or wrong.
TextReport which_report(const RunFiles& run, const ProblemId& id, const std::vector<std::string>& inputs);

// Of each problem of `networks` (and of `ops`, where any is named) our fastest variant beside all baselines, an op a
// table. Throws std::runtime_error where the run lacks one of those names.
TextReport which_table(const RunFiles& run, std::vector<std::string> networks, std::vector<std::string> ops);

// The op's problems that the rows have, those with the nearest fields first.
std::vector<std::string> nearest_problems(const std::vector<SweepRow>& rows, const ProblemId& id, std::size_t most);

}  // namespace noisefloor
