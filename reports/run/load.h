// Other programs on a host's cores.
#pragma once

#include <vector>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Of so many of their threads that could run, on average, a sweep warns, and a run is no baseline without being asked
// for: where nothing else is done, it is below a tenth.
inline constexpr double kLoaded = 0.5;

// Of a run: the median of its rows, NaN where none says.
double load_of(const std::vector<SweepRow>& rows);

}  // namespace noisefloor
