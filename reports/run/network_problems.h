// networks.csv of a run folder: every problem of the networks that were swept, timed or not, so that a total over a
// network knows what it lacks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

struct NetworkProblem {
  std::string network, op, problem;
  long count = 0;    // per forward pass
  bool set = false;  // a set of problems to look at together, and not a network
};

// Networks and sets are called as in bench/problems since schema 3 (NOISEFLOOR_OLD_NETWORK); older folders are read so.
bool has_old_names(const std::filesystem::path& folder);  // by its env.json; not without one
std::string name_of_today(const std::string& old_network);
std::string names_of_today(const std::string& old_networks);  // of a row's column `networks`

// Adds to what the folder has (a run may be resumed for another network). Throws std::runtime_error naming the
// file.
void merge_network_problems(const std::filesystem::path& folder, const std::vector<NetworkProblem>& problems);

// Adds what `from` has, whose rows these are.
void merge_network_problems(const std::filesystem::path& folder, const std::filesystem::path& from,
                            const std::vector<SweepRow>& rows);

// Of the folder; where it has no networks.csv, what the rows themselves name.
std::vector<NetworkProblem> read_network_problems(const std::filesystem::path& folder,
                                                  const std::vector<SweepRow>& rows);
std::vector<NetworkProblem> network_problems_of(const std::vector<SweepRow>& rows);

// cases.csv: every case that a sweep into the folder chose, timed or not, so that a run that was interrupted, or whose
// budget ran out, can say which of its cases have no row.
//
// Adds to what the folder has; columns of its file that are not known stay. Throws std::runtime_error naming the file.
void merge_selected_cases(const std::filesystem::path& folder, const std::vector<CaseId>& cases);

// Adds what `from` has, where it has any.
void merge_selected_cases(const std::filesystem::path& folder, const std::filesystem::path& from);

// Empty where the folder has no cases.csv (a run of an earlier version).
std::vector<CaseId> read_selected_cases(const std::filesystem::path& folder);

// Those without a row, in their order.
std::vector<CaseId> cases_without_row(const std::vector<CaseId>& cases, const std::vector<SweepRow>& rows);

}  // namespace noisefloor
