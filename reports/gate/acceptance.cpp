#include "reports/gate/acceptance.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/run/load.h"
#include "reports/run/statistics.h"

namespace noisefloor {

std::vector<std::string> doubts_about(const RunFiles& candidate, const GateResult* against) {
  std::vector<std::string> doubts;
  if (const double load = load_of(candidate.rows); load >= kLoaded)
    doubts.push_back(fmt::format("it was measured beside other programs ({:.1f} of their threads could run)", load));
  const auto throttled = std::count_if(candidate.rows.begin(), candidate.rows.end(),
                                       [](const SweepRow& row) { return row.status == Outcome::throttled; });
  if (throttled > 0)
    doubts.push_back(fmt::format("{} of its rows {} throttled", throttled, throttled == 1 ? "is" : "are"));
  if (against == nullptr || against->rows.empty()) return doubts;
  // Work on one op makes its rows faster, not the middle of all rows.
  constexpr double kMuchFaster = 0.8;
  std::vector<double> ratios;
  for (const GateRow& row : against->rows) ratios.push_back(row.change.cold.b_us / row.change.cold.a_us);
  if (const double ratio = median(ratios); ratio < kMuchFaster)
    doubts.push_back(fmt::format("half of its rows take less than {:.2f} times the baseline's time", ratio));
  return doubts;
}

}  // namespace noisefloor
