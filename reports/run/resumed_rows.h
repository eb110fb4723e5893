// What an earlier sweep left in a run folder, for one that resumes it.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Cuts off half a last line and drops samples without a row, as a killed sweep leaves them. Throws std::runtime_error
// naming file and line where a file is not a sweep's, or a row contradicts itself or its samples: what is damaged is
// not resumed.
std::map<CaseId, SweepRow> resumed_rows(const std::filesystem::path& folder);

// Samples are written before their row: those of a sweep that was killed in between will be taken again.
void drop_samples_without_row(const std::filesystem::path& folder, const std::map<CaseId, SweepRow>& rows);

// Timed rows whose samples are not in samples.jsonl, which was cut: no reader takes them. None where there is no such
// file.
std::set<CaseId> rows_without_samples(const std::filesystem::path& folder, const std::map<CaseId, SweepRow>& rows);

std::runtime_error foreign_file(const std::string& place);

}  // namespace noisefloor
