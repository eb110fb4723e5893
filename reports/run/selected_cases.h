// cases.csv of a run folder: every case that a sweep into it chose, timed or not, so that a run that was interrupted,
// or whose budget ran out, can say which of its cases have no row.
#pragma once

#include <filesystem>
#include <vector>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Adds to what the folder has; columns of its file that are not known stay. Throws std::runtime_error naming the file.
void merge_selected_cases(const std::filesystem::path& folder, const std::vector<CaseId>& cases);

// Adds what `from` has, where it has any.
void merge_selected_cases(const std::filesystem::path& folder, const std::filesystem::path& from);

// Empty where the folder has no cases.csv (a run of an earlier version).
std::vector<CaseId> read_selected_cases(const std::filesystem::path& folder);

// Those without a row, in their order.
std::vector<CaseId> cases_without_row(const std::vector<CaseId>& cases, const std::vector<SweepRow>& rows);

}  // namespace noisefloor
