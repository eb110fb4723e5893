#include "bench/sweep/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void require_known(const char* what, const std::vector<std::string>& names, const std::set<std::string>& known) {
  const std::vector<std::string> list(known.begin(), known.end());
  for (const std::string& name : names)
    if (!known.contains(name))
      throw InvalidInput(
          fmt::format("unknown {} '{}'{}; known: {}", what, name, did_you_mean(name, list), fmt::join(list, ", ")));
}

}  // namespace

std::vector<ProblemEntry> problems_of_networks(const std::vector<ProblemEntry>& problems, const Selection& selection) {
  std::vector<ProblemEntry> selected = in_networks(problems, selection.networks);
  if (selection.whole_networks.empty()) return selected;
  const auto whole = [](const ProblemEntry& entry) { return entry.entry->whole_networks; };
  std::erase_if(selected, whole);
  for (ProblemEntry& entry : in_networks(problems, selection.whole_networks))
    if (whole(entry)) selected.push_back(std::move(entry));
  return selected;
}

std::vector<Case> select_cases(const std::vector<ProblemEntry>& problems, const Selection& selection, bool host) {
  std::set<std::string> ops, variants, kinds, dtypes;
  for (const SuiteEntry& entry : suite().entries()) {
    ops.insert(entry.name());
    for (const ImplementationPtr& implementation : entry.implementations) {
      variants.insert(implementation->name);
      kinds.insert(implementation->kind);
    }
    for (const DType dtype : entry.workload->dtypes) dtypes.insert(to_string(dtype));
  }
  require_known("op", selection.ops, ops);
  require_known("variant", selection.variants, variants);
  require_known("dtype", selection.dtypes, dtypes);
  require_known("kind", selection.kinds, kinds);

  std::set<std::pair<std::string, std::string>> left_out;
  for (const ProblemEntry& entry : in_networks(problems, selection.without))
    left_out.emplace(entry.op->name, entry.text);
  std::vector<Case> cases;
  for (const ProblemEntry& entry : problems_of_networks(problems, selection)) {
    if (left_out.contains({entry.op->name, entry.text})) continue;
    if (!selection.ops.empty() && !contains(selection.ops, entry.op->name)) continue;
    for (const DType dtype : entry.op->dtypes) {
      const ProblemEntry in_dtype = entry.in(dtype, contains(selection.dtypes, to_string(dtype)));
      if (in_dtype.uses.empty()) continue;
      for (const ImplementationPtr& implementation : entry.entry->implementations) {
        if (!selection.variants.empty() && !contains(selection.variants, implementation->name)) continue;
        if (!selection.kinds.empty() && !contains(selection.kinds, implementation->kind)) continue;
        // Unasked, a sweep of a GPU has no rows of the host's variants, and the other way round.
        const bool asked = !selection.variants.empty() || !selection.kinds.empty();
        if (!asked && !implementation->runs_on_platform(host)) continue;
        cases.push_back({entry.entry, implementation, entry.problem, dtype, entry.text, in_dtype.networks()});
      }
    }
  }
  return cases;
}

}  // namespace noisefloor
