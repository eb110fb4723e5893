#include "bench/sweep/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/pipeline/executor.h"
#include "bench/platform/refusal.h"
#include "bench/sweep/suite.h"
#include "bench/sweep/workers.h"
#include "kernels/core/listed.h"
#include "networks/network.h"
#include "networks/rewrite.h"

namespace noisefloor {
namespace {

// Small enough to be run often: one real network, and on a GPU the streaming cases that show its bandwidth.
constexpr const char* kDefaultNetworks[] = {"adm64-b1", "stream"};

// Whole networks that such a sweep has, by their rows: those of hosts, or those of GPUs alone.
std::vector<std::string> default_whole_networks(bool of_hosts) {
  std::vector<std::string> names;
  for (const networks::NetworkInfo& info : networks::all_networks())
    for (const std::int64_t batch : info.swept)
      if (info.swept_on_hosts == of_hosts) names.push_back(fmt::format("{}-b{}", info.name, batch));
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void require_known(const char* what, const std::vector<std::string>& names, const std::set<std::string>& known) {
  const std::vector<std::string> list(known.begin(), known.end());
  for (const std::string& name : names)
    if (!known.contains(name))
      throw refusal("unknown {} '{}'{}; known: {}", what, name, did_you_mean(name, list), fmt::join(list, ", "));
}

// About the time by any GPU's roof, in bytes: an H200 does 220 products' operations in the time of a byte, and 15
// others.
double roof_cost(const ProblemEntry& entry, DType dtype) {
  const Cost cost = entry.op->cost(entry.problem, dtype);
  return std::max(cost.bytes, cost.flops / (cost.pipe == Pipe::tensor ? 220 : 15));
}

// Of each network of the selection, and of each dtype, the problems whose count times cost is the highest.
std::set<ProblemId> costliest(const std::vector<ProblemEntry>& problems, const Selection& selection) {
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<double, ProblemId>>> of_network;
  for (const ProblemEntry& entry : problems_of_networks(problems, selection)) {
    if (entry.entry->whole_networks) continue;
    for (const DType dtype : entry.op->dtypes)
      for (const auto& use : entry.in(dtype, contains(selection.dtypes, to_string(dtype))).uses)
        if (!use.set)
          of_network[{use.network, to_string(dtype)}].push_back(
              {static_cast<double>(use.count) * roof_cost(entry, dtype),
               {entry.op->name, entry.text, to_string(dtype)}});
  }
  std::set<ProblemId> ids;
  for (auto& [network, costs] : of_network) {
    std::stable_sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    costs.resize(std::min(costs.size(), static_cast<std::size_t>(selection.max_autotune)));
    for (const auto& [cost, id] : costs) ids.insert(id);
  }
  return ids;
}

// Case::weights of what the networks of `selected` launch as built, and what plans may launch in the place of that
// (`NAME-folded-bN`). `problems` has the networks themselves.
std::map<ProblemId, std::uint64_t> weights_as_built(const std::vector<ProblemEntry>& problems,
                                                    const std::vector<ProblemEntry>& selected,
                                                    const std::vector<std::string>& dtypes) {
  const auto used = network_names(selected);
  std::map<ProblemId, std::uint64_t> weights;
  const auto add = [&](const ProblemEntry& whole, bool folded) {
    for (const DType dtype : whole.op->dtypes) {
      if (!contains(dtypes, to_string(dtype))) continue;
      const networks::Network network = pipeline::build_network(whole.problem, dtype, folded);
      for (const auto& one : folded ? count_foldable(network) : count_problems(network.graph))
        weights.try_emplace(pipeline::problem_id(one), one.weights).first->second &= one.weights;
    }
  };
  for (const ProblemEntry& entry : problems)
    for (const auto& use : entry.uses) {
      if (!entry.entry->whole_networks) break;
      const std::size_t size = std::min(use.network.rfind("-b"), use.network.size());
      if (contains(used, use.network)) add(entry, false);
      if (contains(used, use.network.substr(0, size) + "-folded" + use.network.substr(size))) add(entry, true);
    }
  return weights;
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
  const std::set<ProblemId> searched = costliest(problems, selection);
  const std::vector<ProblemEntry> selected = problems_of_networks(problems, selection);
  std::map<ProblemId, std::uint64_t> weights;
  if (!host) weights = weights_as_built(problems, selected, selection.dtypes);
  std::vector<Case> cases;
  for (const ProblemEntry& entry : selected) {
    if (left_out.contains({entry.op->name, entry.text})) continue;
    if (!selection.ops.empty() && !contains(selection.ops, entry.op->name)) continue;
    for (const DType dtype : entry.op->dtypes) {
      const ProblemEntry in_dtype = entry.in(dtype, contains(selection.dtypes, to_string(dtype)));
      if (in_dtype.uses.empty()) continue;
      const bool large = std::ranges::all_of(in_dtype.uses, &ProblemEntry::Use::by_name);
      for (const ImplementationPtr& implementation : entry.entry->implementations) {
        if (!selection.variants.empty() && !contains(selection.variants, implementation->name)) continue;
        if (!selection.kinds.empty() && !contains(selection.kinds, implementation->kind)) continue;
        if (implementation->name == kMaxAutotune && selection.variants.empty() &&
            !searched.contains({entry.op->name, entry.text, to_string(dtype)}))
          continue;
        // Unasked, a sweep of a GPU has no rows of the host's variants, and the other way round.
        const bool asked = !selection.variants.empty() || !selection.kinds.empty();
        if (!asked && !implementation->runs_on_platform(host)) continue;
        const bool brief = selection.variants.empty() && (large || implementation->is(Kind::naive));
        cases.push_back({entry.entry, implementation, entry.problem, dtype, entry.text, in_dtype.networks(), brief});
        if (const auto known = weights.find(cases.back().id()); known != weights.end())
          cases.back().weights = known->second;
      }
    }
  }
  return cases;
}

Selection Selection::with_networks(const std::vector<ProblemEntry>& loaded, bool host) const {
  Selection selection = *this;
  if (!networks.empty()) return selection;
  const auto known = network_names(loaded);
  for (const char* name : kDefaultNetworks)
    if (!(host && std::string(name) == "stream")) selection.networks.emplace_back(name);
  for (const bool of_hosts : {true, false})
    if (of_hosts || !host)
      for (const std::string& name : default_whole_networks(of_hosts)) selection.whole_networks.push_back(name);
  for (auto* const names : {&selection.networks, &selection.whole_networks})
    std::erase_if(*names, [&](const std::string& name) { return !contains(known, name); });
  return selection;
}

std::string default_networks_text() {
  return fmt::format("{}, on a GPU also {}; whole networks:\n{}, on a GPU also {}", kDefaultNetworks[0],
                     kDefaultNetworks[1], listed(default_whole_networks(true), "and"),
                     listed(default_whole_networks(false), "and"));
}

}  // namespace noisefloor
