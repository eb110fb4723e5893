#include "bench/sweep/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/platform/build_info.h"
#include "bench/platform/refusal.h"
#include "reports/run/run_folder.h"

namespace noisefloor {
namespace {

// An op that was asked for and that no chosen network has would be left out without a word.
void require_ops_in_networks(const std::vector<ProblemEntry>& problems, const Selection& selection) {
  const auto chosen = problems_of_networks(problems, selection);
  for (const std::string& op : selection.ops)
    if (std::none_of(chosen.begin(), chosen.end(), [&](const auto& entry) { return entry.op->name == op; }))
      throw refusal("--ops: the chosen networks have no {} (noisefloor list problems --ops {})", op, op);
}

void require_some(const std::vector<Case>& cases, const std::string& message) {
  if (cases.empty()) throw InvalidInput(message);
}

bool in_worker(const Case& test_case) {
  return test_case.implementation->in_worker;
}

// They count as missing in totals.
void add_not_written(const std::string& folder, std::vector<NetworkProblem>& all) {
  std::map<std::string, std::set<std::string>> ops;  // by network
  for (const UnwrittenProblem& one : load_not_written(folder)) {
    const auto asked = std::ranges::find(all, one.network, &NetworkProblem::network);
    if (asked == all.end()) continue;
    ops[one.network].insert(one.op);
    all.push_back({one.network, one.op, one.problem, one.count, asked->set});
  }
  for (const auto& [network, names] : ops)
    fmt::print(stderr, "{}: not written, and missing in its totals: {} (noisefloor list problems --networks {})\n",
               network, fmt::join(names, ", "), network);
}

}  // namespace

SweepPlan plan_sweep(const SweepRequest& request) {
  if (request.shard) (void)parse_shard(*request.shard);
  return {request, parse_benchmark_flags(request.benchmark_arguments), load_problems(request.cases.problems)};
}

std::vector<Case> asked_cases(const SweepPlan& plan, const PluginFiles& plugins, bool host) {
  const auto& [arguments, flags, problems] = plan;
  if (arguments.cases.max_autotune > 0 && ((host && !flags.list_tests) || arguments.pytorch == "off"))
    throw InvalidInput("--pytorch max_autotune=: PyTorch's rows need a CUDA device, and not off");
  const Selection selection = arguments.cases.with_networks(problems, host);
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
std::vector<NetworkProblem> asked_network_problems(const SweepPlan& plan, bool host) {
  std::vector<NetworkProblem> all;
  for (const ProblemEntry& entry :
       problems_of_networks(plan.problems, plan.request.cases.with_networks(plan.problems, host)))
    for (const auto& use : entry.uses)
      if (!use.dtype) all.push_back({use.network, entry.op->name, entry.text, use.count, use.set});
  add_not_written(plan.request.cases.problems, all);
  return all;
}

PyTorchSide start_pytorch_for(std::vector<Case>& cases, const SweepRequest& request, int device) {
  PyTorchSide side;
  if (std::none_of(cases.begin(), cases.end(), in_worker)) return side;
  try {
    const bool max_autotune = std::any_of(cases.begin(), cases.end(),
                                          [](const Case& one) { return one.implementation->name == kMaxAutotune; });
    side.worker = start_pytorch(device, max_autotune);
    leave_out_peers(cases, request.cases.variants, *side.worker);
    require_some(cases,
                 "the chosen cases are of peers that are not installed: scripts/setup --peers, or see --variants");
  } catch (const LibraryMissing& error) {
    side.why_not = error.what();
    const bool nothing_else = std::all_of(cases.begin(), cases.end(), in_worker);
    if (nothing_else || request.pytorch == "require") throw InvalidInput(side.why_not);
    fmt::print(stderr, "no rows of PyTorch (NOISEFLOOR_PYTHON names a Python that has it): {}\n", side.why_not);
    if (!request.shard) std::erase_if(cases, in_worker);
  }
  return side;
}

std::vector<CaseId> ids_of(const std::vector<Case>& cases) {
  std::vector<CaseId> ids;
  for (const Case& one : cases) ids.push_back(one.id());
  return ids;
}

std::optional<ShardRecord> take_shard(std::vector<Case>& cases, const SweepRequest& request) {
  if (!request.shard) return std::nullopt;
  ShardRecord shard = make_shard_record(parse_shard(*request.shard), ids_of(cases));
  const std::set<CaseId> own(shard.cases.begin(), shard.cases.end());
  std::erase_if(cases, [&](const Case& one) { return !own.contains(one.id()); });
  return shard;
}

std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         std::initializer_list<std::string_view> options,
                                         std::initializer_list<std::string_view> flags) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = std::string_view(arguments[i]).substr(0, arguments[i].find('='));
    if (std::ranges::count(options, name) > 0) {
      if (name == arguments[i]) ++i;  // its value is the next
    } else if (std::ranges::count(flags, std::string_view(arguments[i])) == 0) {
      kept.push_back(arguments[i]);
    }
  }
  return kept;
}

std::string command_text(const SweepRequest& request) {
  std::vector<std::string> words = without_options(request.command_line, {"--out", "--runs"}, {"--fresh"});
  words.front() = build_info().commit;
  return nlohmann::json(words).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

fs::path run_folder_of(const SweepRequest& request, const std::string& device) {
  if (!request.out.empty()) return request.out;
  if (request.runs.empty()) return default_run_folder(device);
  const fs::path runs = request.runs;
  if (!request.fresh)
    if (const auto begun = unfinished_run(runs / device_slug(device), command_text(request))) {
      fmt::print(stderr, "resuming {} (--fresh begins another)\n", begun->string());
      return *begun;
    }
  return default_run_folder(device, runs);
}

}  // namespace noisefloor
