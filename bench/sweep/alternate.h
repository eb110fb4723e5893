// Two builds of the program on one device in turns, case by case, in passes: the measuring of `noisefloor ab`.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/measure/worker.h"
#include "reports/run/pair_ratio.h"

namespace noisefloor {

struct AlternateOptions {
  double resolve = 0.01;
  int passes = 5, most_passes = 16;  // the cases that are resolved after `passes` are left out of the others
  int most_passes_slower = 32;       // at least `most_passes`: of those that still look slower then
  int rounds = 4;                    // of a pass: blocks in the order A B B A, B A A B, ...
  double budget_seconds = std::numeric_limits<double>::infinity();  // once spent, no further case is begun
};

struct Builds {
  std::function<std::unique_ptr<Worker>()> start_old, start_new;  // each time new processes
};

// Nothing of `cases` may be in a worker. `say`: one line per pass. Throws InvalidInput where a build cannot be started;
// after the first pass the cases that are open then stay unresolved, as
// those do that the budget leaves with fewer than `passes`. A case is gone where the new build alone was killed from
// outside in every pass, of `passes` at least.
std::vector<BuildPair> alternate(const Builds& builds, const std::vector<Case>& cases, const AlternateOptions& options,
                                 const std::function<void(const std::string&)>& say);

}  // namespace noisefloor
