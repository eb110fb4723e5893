// Everything that this program can measure.
#pragma once

#include "bench/measure/suite.h"

namespace noisefloor {

// The ops of the catalogue with their ladders and the vendors' baselines, and behind them whole networks, so that their
// plans find the times of the ops before them.
const Suite& suite();

// Where its baselines keep what their searches find.
const std::shared_ptr<SearchCache>& kept_searches();

}  // namespace noisefloor
