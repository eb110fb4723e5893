// The roofline of a run, from its files alone: where each row stands under the measured ceilings, and the fastest
// variant of each problem.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/run/ceilings_csv.h"
#include "reports/run/sweep_csv.h"
#include "reports/totals/totals.h"

namespace noisefloor {

// Fills attainable_gflops, pct_of_roof and bound of timed rows that lack them (rows of another program, as PyTorch's),
// by the ceilings that the other rows of the same op and dtype name.
void complete_rows(std::vector<SweepRow>& rows, const CeilingTable& ceilings);

// The fastest `ok` row of each (op, problem, dtype) by cold time; `own_only` leaves out baselines.
std::vector<const SweepRow*> fastest_rows(const std::vector<SweepRow>& rows, bool own_only);

void write_roofline_csv(const std::filesystem::path& file, const std::vector<SweepRow>& rows,
                        const CeilingTable& ceilings);
// Without rows of other programs (torch_*) and of whole networks: a pipeline loads the plan.
void write_plan_csv(const std::filesystem::path& file, const std::vector<SweepRow>& rows);

// Text for the terminal: a line per row (or, for many rows, the best own variant and the baselines of each problem),
// then the totals.
std::string row_table(const std::vector<SweepRow>& rows);
std::string totals_table(const std::vector<NetworkTotal>& totals);  // op by op

}  // namespace noisefloor
