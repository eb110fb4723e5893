// The roofline of a run, from its files alone: where each row stands under the measured ceilings, the fastest variant
// of each problem, and what a forward pass of each network would take.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reports/network_problems.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Measured rates by name ("dram_copy" in GB/s, "tensor_bf16" in GFLOP/s), from ceilings.csv.
using CeilingRates = std::map<std::string, double>;
CeilingRates read_ceiling_rates(const std::filesystem::path& file);  // throws std::runtime_error

// The compute ceiling behind a row's `bound` ("memory:tensor_bf16" -> "tensor_bf16"); empty when the row names none.
std::string compute_ceiling_of(const SweepRow& row);

// Fills attainable_gflops, pct_of_roof and bound of timed rows that lack them (rows of another program, as PyTorch's),
// by the ceilings that the other rows of the same op and dtype name.
void complete_rows(std::vector<SweepRow>& rows, const CeilingRates& ceilings);

// The fastest `ok` row of each (op, problem, dtype) by cold time; `own_only` leaves out baselines.
std::vector<const SweepRow*> fastest_rows(const std::vector<SweepRow>& rows, bool own_only);

// One forward pass of a network: the sum of time x count over an op's problems. `missing` counts problems of the
// network that the choice has no ok row for; the sum then leaves them out, and says so.
struct NetworkTotal {
  std::string network, op, dtype, choice;  // a variant's name, "own best" or "fastest"
  double microseconds = 0;                 // cold
  double warm_microseconds = 0;            // of the same rows
  int problems = 0;
  int missing = 0;
};
std::vector<NetworkTotal> network_totals(const std::vector<SweepRow>& rows,
                                         const std::vector<NetworkProblem>& problems);

void write_roofline_csv(const std::filesystem::path& file, const std::vector<SweepRow>& rows,
                        const CeilingRates& ceilings);
// Without rows of other programs (torch_*) and of whole networks: a pipeline loads the plan.
void write_plan_csv(const std::filesystem::path& file, const std::vector<SweepRow>& rows);

// Text for the terminal: a line per row (or, for many rows, the best own variant and the baselines of each problem),
// then the totals.
std::string row_table(const std::vector<SweepRow>& rows);
std::string totals_table(const std::vector<NetworkTotal>& totals);

}  // namespace noisefloor
