// Whether two runs have the samples of one process.
#pragma once

#include "reports/run/run_files.h"

namespace noisefloor {

// As a copy of a run, or where one process was pooled into both (reports/run/pool_rows.h): most rows that both have
// with samples have a piece of them in common, one sample after another. Some rows may have by chance, since a clock is
// coarse.
bool share_a_process(const RunFiles& a, const RunFiles& b);

}  // namespace noisefloor
