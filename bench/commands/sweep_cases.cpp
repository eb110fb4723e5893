// Which cases a sweep has.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/commands/sweep_arguments.h"
#include "bench/sweep/pytorch.h"

namespace noisefloor {
namespace {

Selection selection_of(const SweepArguments& arguments, const std::vector<ProblemEntry>& problems, bool host) {
  Selection selection = arguments.cases.selection(problems, host);
  selection.max_autotune = arguments.max_autotune;
  return selection;
}

// An op that was asked for and that no chosen network has would be left out without a word.
void require_ops_in_networks(const std::vector<ProblemEntry>& problems, const Selection& selection) {
  const auto chosen = problems_of_networks(problems, selection);
  for (const std::string& op : selection.ops)
    if (std::none_of(chosen.begin(), chosen.end(), [&](const auto& entry) { return entry.op->name == op; }))
      throw InvalidInput(
          fmt::format("--ops: the chosen networks have no {} (noisefloor list problems --ops {})", op, op));
}

void require_some(const std::vector<Case>& cases, const std::string& message) {
  if (cases.empty()) throw InvalidInput(message);
}

bool in_worker(const Case& test_case) {
  return test_case.implementation->in_worker;
}

}  // namespace

std::vector<Case> asked_cases(const SweepArguments& arguments, const BenchmarkFlags& flags,
                              const std::vector<ProblemEntry>& problems, const PluginFiles& plugins, bool host) {
  if (arguments.max_autotune > 0 && ((host && !flags.list_tests) || arguments.pytorch == "off"))
    throw InvalidInput("--max-autotune: PyTorch's rows need a CUDA device, and --pytorch auto or require");
  const Selection selection = selection_of(arguments, problems, host);
  std::vector<Case> cases = select_cases(problems, selection, host);
  require_ops_in_networks(problems, selection);
  require_some(cases, "no case matches; see noisefloor list problems, --ops, --networks, --variants and --kinds");
  std::erase_if(cases, [&](const Case& test_case) { return !flags.matches(test_case.id().name()); });
  require_some(cases, "no case matches --benchmark_filter=" + flags.filter);
  fmt::print(stderr, "{}", plugins_without_rows(plugins, cases, host));
  if (arguments.pytorch == "require" && host && !flags.list_tests)
    throw InvalidInput("--pytorch require: PyTorch's rows need a CUDA device");
  if (arguments.pytorch == "off") std::erase_if(cases, in_worker);
  require_some(cases, "--pytorch off: all the chosen cases are PyTorch's");
  return cases;
}

// Totals are of one dtype: what a network has in another whatever its own (the casts at its ends) is in plans, not in
// totals.
std::vector<NetworkProblem> asked_network_problems(const SweepArguments& arguments,
                                                   const std::vector<ProblemEntry>& problems, bool host) {
  std::vector<NetworkProblem> all;
  for (const ProblemEntry& entry : problems_of_networks(problems, selection_of(arguments, problems, host)))
    for (const auto& use : entry.uses)
      if (!use.dtype) all.push_back({use.network, entry.op->name, entry.text, use.count, use.set});
  return all;
}

PyTorchSide start_pytorch_for(std::vector<Case>& cases, const SweepArguments& arguments, int device) {
  PyTorchSide side;
  if (std::none_of(cases.begin(), cases.end(), in_worker)) return side;
  try {
    const bool max_autotune = std::any_of(cases.begin(), cases.end(),
                                          [](const Case& one) { return one.implementation->name == kMaxAutotune; });
    side.worker = start_pytorch({device, max_autotune});
  } catch (const LibraryMissing& error) {
    side.why_not = error.what();
    const bool nothing_else = std::all_of(cases.begin(), cases.end(), in_worker);
    if (nothing_else || arguments.pytorch == "require") throw InvalidInput(side.why_not);
    fmt::print(stderr, "no rows of PyTorch (NOISEFLOOR_PYTHON names a Python that has it): {}\n", side.why_not);
    if (!arguments.shard) std::erase_if(cases, in_worker);
  }
  return side;
}

std::vector<CaseId> ids_of(const std::vector<Case>& cases) {
  std::vector<CaseId> ids;
  for (const Case& one : cases) ids.push_back(one.id());
  return ids;
}

std::optional<ShardRecord> take_shard(std::vector<Case>& cases, const SweepArguments& arguments) {
  if (!arguments.shard) return std::nullopt;
  ShardRecord shard = make_shard_record(parse_shard(*arguments.shard), ids_of(cases));
  const std::set<CaseId> own(shard.cases.begin(), shard.cases.end());
  std::erase_if(cases, [&](const Case& one) { return !own.contains(one.id()); });
  return shard;
}

}  // namespace noisefloor
