// crosscheck.csv (sweep --do-bench) of runs that are merged.
#pragma once

#include <filesystem>
#include <map>
#include <vector>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Parts of a sweep: the lines of all that have the file. Throws std::runtime_error naming the file.
void join_crosschecks(const std::filesystem::path& out, const std::vector<std::filesystem::path>& parts);

// Runs of the same cases: the lines of cases that every run has, with the time of the pooled row, the median of their
// do_bench times and the ratio of both. False where only some runs have the file: then nothing is written. Throws
// std::runtime_error naming file and line.
bool pool_crosschecks(const std::filesystem::path& out, const std::vector<std::filesystem::path>& runs,
                      const std::map<CaseId, const SweepRow*>& rows);

}  // namespace noisefloor
