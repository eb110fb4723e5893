// Which cases a sweep runs: problems x dtypes x implementations, cut down by name.
#pragma once

#include <string>
#include <vector>

#include "bench/sweep/problem_files.h"

namespace noisefloor {

struct Selection {
  std::vector<std::string> ops;                // empty: all
  std::vector<std::string> networks;           // {"all"}, or names; empty: the default ones
  std::vector<std::string> variants;           // empty: all
  std::vector<std::string> kinds;              // empty: those of the platform
  std::vector<std::string> dtypes = {"bf16"};  // of the networks; problems with a dtype of their own are swept in that
  std::vector<std::string> whole_networks = {};  // of the op `network`, instead of `networks`; empty: as those
  std::vector<std::string> without = {};         // networks whose problems are left out
  int max_autotune = 0;  // so many of each network's costliest problems have kMaxAutotune too, which is otherwise named
  std::string problems = {};  // folder of their files; empty: default_problem_folder()

  // Without networks the default ones that are there, which are fewer on a host.
  Selection with_networks(const std::vector<ProblemEntry>& loaded, bool host) const;
};
std::string default_networks_text();  // for the help

// The problems of the selection's networks, of all ops. Throws InvalidInput on names that nothing has.
std::vector<ProblemEntry> problems_of_networks(const std::vector<ProblemEntry>& problems, const Selection& selection);

// In the order of the catalogue, then of the problems, then of the variants. Throws InvalidInput with "did you mean" on
// any name that nothing has.
std::vector<Case> select_cases(const std::vector<ProblemEntry>& problems, const Selection& selection, bool host);

}  // namespace noisefloor
