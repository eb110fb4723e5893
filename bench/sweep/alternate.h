// Two builds of the program on one device in turns, case by case, in passes: the measuring of `noisefloor ab`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/measure/worker.h"
#include "reports/run/pair_ratio.h"

namespace noisefloor {

struct Builds {
  std::function<std::unique_ptr<Worker>()> start_old, start_new;  // each time new processes
};

// Resolves a change of time of `resolve`. Nothing of `cases` may be in a worker. Once the budget is spent, no further
// case is begun. `say`: one line per pass. Throws InvalidInput where a build cannot be started; after the first pass
// the cases that are open then stay unresolved, as those do that the budget leaves with fewer than five passes. A case
// is gone where the new build alone was killed from outside in every pass, of five at least. Without `all` those whose
// launches have the same signature in both builds are not timed.
std::vector<BuildPair> alternate(const Builds& builds, const std::vector<Case>& cases, double resolve,
                                 double budget_seconds, bool all, const std::function<void(const std::string&)>& say);

}  // namespace noisefloor
