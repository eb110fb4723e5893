// The problems of real networks: bench/problems/<op>.csv, columns `network`, the op's fields, `count`, and
// `dtype` where a network has the problem in one element type whatever its own. sets.csv names those that are sets of
// problems, and not networks; not_written.csv has what else a network asks for, and no op is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/sweep/suite.h"

namespace noisefloor {

struct ProblemEntry {
  const SuiteEntry* entry;
  const Workload* op;  // the entry's
  AnyProblem problem;
  std::string text;  // canonical
  struct Use {
    std::string network;
    long count;                  // per forward pass
    std::optional<DType> dtype;  // none: the network's own, which the sweep chooses
    bool set = false;            // a set of problems (sets.csv), and not a network
    bool by_name = false;        // a set that is not of "all": its problems are large
  };
  std::vector<Use> uses;

  std::string networks() const;  // "adm64-b1:10;sd15-b2:2"
  // With those uses only that are in `dtype`: `swept` says whether the networks themselves are.
  ProblemEntry in(DType dtype, bool swept) const;
};

// The folder with problem files: `bench/problems` beside or above the running program. Throws InvalidInput when there
// is none.
std::filesystem::path default_problem_folder();

// Every problem of every file of the folder (empty: the default one), distinct by op and text, in the order of the
// catalogue and the files. Throws InvalidInput naming file, line, column and range for a row that is not a problem, and
// for a file that is of nothing that is `known`.
std::vector<ProblemEntry> load_problems(const std::filesystem::path& folder, const Suite& known = suite());

// What a network asks for that is no op here: `op` and `problem` are words for readers.
struct UnwrittenProblem {
  std::string network, op, problem, why;
  long count;  // per forward pass
};
// Of the folder, as load_problems; none where it has no such file.
std::vector<UnwrittenProblem> load_not_written(const std::filesystem::path& folder);

// Network names in the order met.
std::vector<std::string> network_names(const std::vector<ProblemEntry>& problems);

// The problems that occur in `networks` ("all" among them: every one but those of sets that are asked for by name),
// their uses cut down to those. Throws InvalidInput on unknown names.
std::vector<ProblemEntry> in_networks(const std::vector<ProblemEntry>& problems,
                                      const std::vector<std::string>& networks);

// The text of `entry`'s problem that a variant of another op makes of `other` (kernels/catalogue.h); none where none
// does.
std::optional<std::string> handed_to(const SuiteEntry& entry, const ProblemEntry& other, DType dtype);

}  // namespace noisefloor
