// Rows of one case in several runs, that is in several processes, as one row: all their samples together.
#pragma once

#include <vector>

#include "reports/run/run_files.h"

namespace noisefloor {

struct PooledRow {
  SweepRow row;
  RowSamples samples;
};

// Of one case, device and commit, and of one GPU. If one of them is not ok, that run, one that is incorrect or failed
// on the device before others. Times, spread, clocks, edges and what follows from them are of all samples; the duel is
// the mean of theirs where the same two met in all, else left out; the throttling, load and error are the worst of any,
// and a row whose kernels differ says so; the rest is the first row's. Where places are several and each process was at
// all of them, each keeps as many whole rounds over them, so that processes weigh alike and the gate can pair places.
// Throws std::runtime_error where the rows cannot be put together.
PooledRow pool_rows(const std::vector<PooledRow>& runs);

}  // namespace noisefloor
