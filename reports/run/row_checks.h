// What a row's numbers must agree with.
#pragma once

#include "reports/run/run_files.h"

namespace noisefloor {

// Throws std::runtime_error naming the column where a time is not that of the samples. Rows that are not ok have no
// time to compare.
void check_against_samples(const SweepRow& row, const RowSamples& taken);

}  // namespace noisefloor
