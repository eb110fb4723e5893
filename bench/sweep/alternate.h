// Two builds of the program, or two Python environments, on one device in turns, case by case, in passes: the measuring
// of `noisefloor ab`.
#pragma once

#include <filesystem>
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
  const char* what = "build";                                     // for messages
};

// A case that both have.
struct PairedCase {
  std::string name;
  std::function<std::unique_ptr<WorkerCase>(Worker&)> make_ready;
  // What it runs there, or why it refuses: a case of the same on both sides is not timed. None: nobody asks.
  std::function<std::optional<std::string>(Worker&, std::string& refuses)> signature = {};
};

// Resolves a change of time of `resolve`. Once the budget is spent, no further
// case is begun. `say`: one line per pass. Throws InvalidInput where a build cannot be started; after the first pass
// the cases that are open then stay unresolved, as those do that the budget leaves with fewer than five passes. A case
// is gone where the new build alone was killed from outside in every pass, of five at least.
std::vector<BuildPair> alternate(const Builds& builds, const std::vector<PairedCase>& cases, double resolve,
                                 double budget_seconds, const std::function<void(const std::string&)>& say);

// Of `noisefloor ab --python`: starts the old or the new (`which`) environment's worker, of a file's functions.
// `given`: a virtual environment's folder or a Python; with @REV a revision of the repository around this folder comes
// before what is installed; @REV alone is that in python3. `kept`: a folder of theirs. Throws InvalidInput.
ChildCommand python_side(const std::string& given, const std::string& file, const fs::path& kept, const char* which);
std::vector<PairedCase> cases_of(Worker& old_side, Worker& new_side);
// A table of what differs beside time, by one launch of each case on either side; the header first.
std::vector<std::vector<std::string>> differences(Worker& old_side, Worker& new_side,
                                                  const std::vector<PairedCase>& cases);

}  // namespace noisefloor
