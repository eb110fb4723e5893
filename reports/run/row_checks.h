// What a row's numbers must agree with.
#pragma once

#include "reports/run/run_files.h"

namespace noisefloor {

// Each throws std::runtime_error naming the column. Rows that are not ok have no time to compare.

// Where a rate is not that of the row's cold time, its share of the roof not that of the rate, its intensity not flops
// over bytes, its error above what is allowed, or a part of a duel missing.
void check_numbers(const SweepRow& row);
// Where a time is not that of the samples, or a number not theirs.
void check_against_samples(const SweepRow& row, const RowSamples& taken);

}  // namespace noisefloor
