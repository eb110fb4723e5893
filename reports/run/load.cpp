#include "reports/run/load.h"

#include "reports/run/statistics.h"

namespace noisefloor {

double load_of(const std::vector<SweepRow>& rows) {
  std::vector<double> loads;
  for (const SweepRow& row : rows)
    if (row.load) loads.push_back(*row.load);
  return median(std::move(loads));
}

}  // namespace noisefloor
