// A row of ours beside what Nsight Compute says of the same case, and whether the two agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/gate/ncu_csv.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Limits of a verdict; docs/experiments/measuring says where they come from.
struct CrosscheckLimits {
  double time_pct = 3;
  double clock_pct = 1;     // clocks that differ by more are no equal ones
  double shortest_us = 50;  // below it, what surrounds a launch weighs too much to judge times
  double bytes_pct = 5;
  double bytes = 1e6;  // this much more or less is no difference: what else the GPU reads meanwhile
  double occupancy_points = 3;
};

struct CrosscheckLine {
  enum class Verdict { agrees, differs, not_judged };
  std::string name, unit;
  std::optional<double> ours, theirs;
  std::string difference;  // "+1.3 %", "-0.2 points"
  std::string limit;       // or why it is not judged
  Verdict verdict = Verdict::not_judged;
};

// Throws std::runtime_error when the report is of another case (by its NVTX range) or the row is not `ok`. The launches
// are the kernels of one launch of the case: times and bytes are their sums, occupancy and clock their mean by time.
// `launch_mhz` is the SM clock during the row's launches, as ncu's is; the row's own sm_clock_mhz is read between
// them, where a dense product's clock may be higher, and is not compared.
std::vector<CrosscheckLine> crosscheck(const SweepRow& row, const std::vector<NcuLaunch>& launches,
                                       std::optional<double> launch_mhz = {}, const CrosscheckLimits& limits = {});

std::string crosscheck_table(const std::vector<CrosscheckLine>& lines);

}  // namespace noisefloor
