// Everything that this program can measure.
#pragma once

#include "bench/measure/suite.h"

namespace noisefloor {

// The ops of the catalogue with their variants and the vendors' baselines, and behind them whole networks, so that
// their plans find the times of the ops before them.
const Suite& suite();

// Puts a plugin's row behind the others of its op, for all that have the suite; networks' plans do not see it.
void add_to_suite(const std::string& op, ImplementationPtr row);

// Where its baselines keep what their searches find.
const std::shared_ptr<SearchCache>& kept_searches();

}  // namespace noisefloor
