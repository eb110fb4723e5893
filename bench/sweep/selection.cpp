#include "bench/sweep/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/pipeline/network_op.h"
#include "bench/sweep/ops.h"
#include "reports/run/sweep_csv.h"

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
  const auto whole = [](const ProblemEntry& entry) { return entry.op == &pipeline::network_op(); };
  std::erase_if(selected, whole);
  for (ProblemEntry& entry : in_networks(problems, selection.whole_networks))
    if (whole(entry)) selected.push_back(std::move(entry));
  return selected;
}

std::vector<Case> select_cases(const std::vector<ProblemEntry>& problems, const Selection& selection, bool host) {
  std::set<std::string> ops, variants, dtypes;
  for (const Op* op : swept_ops()) {
    ops.insert(op->name);
    for (const Candidate& candidate : candidates_of(*op)) variants.insert(candidate.name);
    for (const DType dtype : op->dtypes) dtypes.insert(to_string(dtype));
  }
  require_known("op", selection.ops, ops);
  require_known("variant", selection.variants, variants);
  require_known("dtype", selection.dtypes, dtypes);
  require_known("kind", selection.kinds, {"host", "naive", "tiled", "tensor_core", "ptx", "baseline", "network"});

  std::vector<Case> cases;
  for (const ProblemEntry& entry : problems_of_networks(problems, selection)) {
    if (!selection.ops.empty() && !contains(selection.ops, entry.op->name)) continue;
    for (const DType dtype : entry.op->dtypes) {
      const ProblemEntry in_dtype = entry.in(dtype, contains(selection.dtypes, to_string(dtype)));
      if (in_dtype.uses.empty()) continue;
      for (const Candidate& candidate : candidates_of(*entry.op)) {
        if (!selection.variants.empty() && !contains(selection.variants, candidate.name)) continue;
        if (!selection.kinds.empty() && !contains(selection.kinds, candidate.kind_text())) continue;
        // Unasked, a sweep of a GPU has no rows of the host's variants, and the other way round.
        const bool asked = !selection.variants.empty() || !selection.kinds.empty();
        if (!asked && !(host ? candidate.on_host() : candidate.on_gpu())) continue;
        cases.push_back({candidate, entry.problem, dtype, entry.text, in_dtype.networks()});
      }
    }
  }
  return cases;
}

CaseId id_of(const Case& test_case) {
  return {{test_case.op().name, test_case.text, to_string(test_case.dtype)}, test_case.candidate.name};
}

}  // namespace noisefloor
