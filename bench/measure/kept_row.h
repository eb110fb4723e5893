// A row of an earlier run that may still be true, and what of it stays.
#pragma once

#include <string>
#include <vector>

#include "bench/measure/case_result.h"
#include "bench/measure/signature.h"
#include "bench/measure/timing.h"

namespace noisefloor {

struct EarlierRow {
  SweepRow row;  // ok
  RowSamples samples = {};
};

// Puts an earlier row, whose launch is the same, in the place of `result`'s blank one: its numbers, commit and date,
// beside what today's problem files and cost say.
void keep_row(const EarlierRow& earlier, CaseResult& result);

// The phases that were taken anew in place of the earlier ones; of the others times, samples and reasons stay.
void keep_other_phases(const EarlierRow& earlier, const std::vector<std::string>& taken, Timing& timing);

// A comparison is of one date: one with a row that was not kept goes.
void forget_comparison(SweepRow& row);

}  // namespace noisefloor
