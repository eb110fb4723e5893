#include "bench/pipeline/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_result.h"
#include "bench/measure/case_runner.h"
#include "bench/platform/build_info.h"
#include "bench/platform/refusal.h"
#include "networks/rewrite.h"
#include "reports/run/statistics.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::uint64_t kSeed = 1;
// Of an op's variants the last ones are timed: the best by its order and the two before it. In published results the
// fastest of a problem is among its last three variants throughout (docs/experiments/networks).
constexpr int kOwnTrials = 3;
// From here on a launch of the naive variant takes ten milliseconds to seconds, a hundred times what others take: it is
// tried where nothing else was right. Large problems that memory binds have fewer; there it is not so far behind.
constexpr double kHopelessFlops = 1e10;

bool in_pool(const Implementation& implementation, Pool pool, bool host) {
  if (!implementation.runs_on_platform(host) || implementation.in_worker) return false;
  if (pool == Pool::naive) return host || implementation.is(Kind::naive);
  if (pool == Pool::tiled) return host || implementation.is(Kind::tiled) || implementation.is(Kind::naive);
  return pool == Pool::fastest || implementation.own() == (pool == Pool::own);
}

// The entry of a node's op. A network of ops that the suite lacks is a mistake of the caller's.
const SuiteEntry& entry_of(const Suite& nodes, const std::string& op) {
  if (const SuiteEntry* entry = nodes.find(op)) return *entry;
  throw std::logic_error("the suite has no op " + op);
}

Case case_of(const Suite& nodes, const CountedProblem& problem, const ImplementationPtr& implementation) {
  return {&entry_of(nodes, problem.op->name), implementation, problem.op->parse(problem.text), problem.dtype,
          problem.text};
}

std::optional<SweepRow> why_not(Platform& platform, const Case& test_case) {
  return refused(test_case, platform.description(), platform.arch_text());
}

// A choice by five to ten times: what is a percent slower may win.
RunnerOptions quick(bool host) {
  RunnerOptions options;
  if (!host) options.verifier = kQuickVerification;
  options.counters = CounterMode::off;
  options.warm = {.relative_half_width = 0.05, .minimum_samples = 5, .maximum_samples = 10, .wall_seconds = 0.3};
  options.seed = kSeed;
  options.warm_only = true;
  return options;
}

// What a library's kernel costs in a network of ours beside its own warm time: the kernel of ours behind it starts when
// it has ended, by an ordinary edge, as programmatic launch needs both sides. Nothing on the host, which has no edges.
double edge_behind_a_library_us(Platform& platform) {
  constexpr int kSamples = 5;
  const auto edges = platform.time_edges(kSamples);
  return edges.empty() ? 0 : median(edges);
}

// Chooses the fastest correct implementation of a pool.
struct Chooser {
  Platform& platform;
  const Suite& nodes;
  KnownTimes& known;
  double library_us;  // beside a library's own time
  int measured = 0;
  bool out_of_memory = false;  // an implementation was out of the last problem for want of memory alone

  // nullopt when none runs the problem; `refusals` says why.
  std::optional<Plan::Choice> choose(const CountedProblem& problem, Pool pool, std::vector<std::string>& refusals) {
    const bool host = platform.description().is_host;
    std::vector<ImplementationPtr> able;
    for (const ImplementationPtr& implementation : entry_of(nodes, problem.op->name).implementations) {
      if (!in_pool(*implementation, pool, host)) continue;
      if (const auto row = why_not(platform, case_of(nodes, problem, implementation)))
        refusals.push_back(implementation->name + ": " + row->reason);
      else
        able.push_back(implementation);
    }
    if (able.size() == 1 && able.front()->own()) return Plan::Choice{able.front(), {}};
    if (pool == Pool::tiled && !able.empty()) {
      const auto tiled = std::ranges::find_if(able, [](const auto& one) { return one->is(Kind::tiled); });
      return Plan::Choice{tiled == able.end() ? able.front() : *tiled, {}};
    }
    // One a problem: its tensors go when the choice is made.
    RunnerOptions options = quick(host);
    options.earlier = known.earlier;
    options.code = known.code;
    options.prepare_each = problem.written_weights;
    CaseRunner runner(platform, nullptr, std::move(options));
    std::optional<Plan::Choice> best;
    double best_us = 0;
    int own_timed = 0;
    // Variants have their best last: begun with it, the slow ones are recognised by one launch.
    for (auto implementation = able.rbegin(); implementation != able.rend(); ++implementation) {
      const Case test_case = case_of(nodes, problem, *implementation);
      const bool own = (*implementation)->own();
      const bool hopeless = best && (*implementation)->is(Kind::naive) &&
                            test_case.entry->workload->cost(test_case.problem, problem.dtype).flops > kHopelessFlops;
      if (own && (hopeless || own_timed >= kOwnTrials) && known.find(test_case.id()) == nullptr) continue;
      const KnownTimes::Entry entry =
          time(runner, test_case, problem.written_weights, best ? best->warm_us : std::nullopt);
      if (!entry.warm_us) {
        refusals.push_back((*implementation)->name + ": " + entry.why_not);
        continue;
      }
      if (own) ++own_timed;
      const double in_network_us = *entry.warm_us + (own ? 0 : library_us);
      if (best && in_network_us >= best_us) continue;
      best = Plan::Choice{*implementation, entry.warm_us};
      best_us = in_network_us;
    }
    return best;
  }

  // `anew`: with the preparing of weights, where it prepares some.
  KnownTimes::Entry time(CaseRunner& runner, const Case& test_case, bool anew, std::optional<double> to_beat) {
    const KnownTimes::Entry* entry = known.find(test_case.id());
    if (entry != nullptr && !(anew && entry->prepares)) return *entry;
    const CaseResult result = runner.run(test_case, to_beat);
    measured += !result.kept;
    if (result.device_lost) throw DeviceError(result.row.reason, true);
    KnownTimes of_this_plan;
    if (result.row.status != Outcome::out_of_memory)
      return (anew && result.row.prepare_us ? of_this_plan : known).add(result.row);
    out_of_memory = true;  // others may do with less, this one at another time, or with a smaller batch
    return {std::nullopt, result.row.reason};
  }
};

// And with them all others of ours in PTX for sm_90a.
bool runs_halos(const Suite& nodes, const Platform& platform, DType dtype) {
  const ImplementationPtr halo = entry_of(nodes, "conv2d").find("ptx_sm90a_halo");
  return dtype != DType::fp32 && halo && halo->built &&
         runs_on(halo->arch, platform.description().info.compute_capability);
}

// `ours`: nodes by op.
std::string fallbacks_text(const std::map<std::string, long>& ours) {
  long sum = 0;
  std::vector<std::string> ops;
  for (const auto& [op, count] : ours) {
    sum += count;
    ops.push_back(fmt::format("{} {}", op, count));
  }
  return fmt::format("ours run {} nodes that no vendor here runs: {}", sum, fmt::join(ops, ", "));
}

}  // namespace

ProblemId problem_id(const Node& node) {
  return {node.op->name, node.text, to_string(node.dtype)};
}

std::optional<Pool> pool_named(const std::string& source) {
  const auto name = std::find(std::begin(kPools), std::end(kPools), source);
  return name == std::end(kPools) ? std::nullopt : std::optional(static_cast<Pool>(name - std::begin(kPools)));
}

ProblemId problem_id(const CountedProblem& problem) {
  return {problem.op->name, problem.text, to_string(problem.dtype)};
}

std::string why_not_launched(Platform& platform, const Suite& nodes, const CountedProblem& problem,
                             const std::string& variant) {
  const ImplementationPtr chosen = entry_of(nodes, problem.op->name).find(variant);
  if (chosen == nullptr) return "this build has no variant " + variant;
  if (chosen->in_worker) return variant + " runs in a program of its own and cannot be launched here";
  const auto row = why_not(platform, case_of(nodes, problem, chosen));
  return row ? variant + " cannot run here: " + row->reason : "";
}

bool folds_skips(const Suite& nodes, const Platform& platform, const std::string& source, DType dtype) {
  const auto pool = pool_named(source);
  return (pool == Pool::own || pool == Pool::fastest) && runs_halos(nodes, platform, dtype);
}

Plan::Plan(Platform& platform, const Suite& nodes, const std::vector<CountedProblem>& problems, const Options& options)
    : nodes_(&nodes) {
  const std::optional<Pool> asked = options.pool ? options.pool : pool_named(options.source);
  const bool named = !asked;  // a file
  PlanEntries entries;
  if (options.entries != nullptr) entries = *options.entries;
  if (named) {
    entries.merge(read_plan(options.source));
    if (const auto doubt = check_plan_origin(options.source, platform.description().name, build_info().commit))
      fmt::print(stderr, "{}\n", *doubt);
  }
  std::vector<std::string> wrong;
  std::vector<const CountedProblem*> open;
  for (const CountedProblem& problem : problems) {
    const auto entry = entries.find(problem_id(problem));
    if (entry == entries.end()) {
      open.push_back(&problem);
      continue;
    }
    const std::string why = why_not_launched(platform, nodes, problem, entry->second);
    if (why.empty())
      choices_[problem_id(problem)] = {entry_of(nodes, problem.op->name).find(entry->second), {}};
    else
      wrong.push_back(fmt::format("{} {}: {}", problem.op->name, problem.text, why));
  }
  if (!wrong.empty()) throw refusal("plan {}:\n  {}", options.source, fmt::join(wrong, "\n  "));
  if (options.strict && !open.empty()) {
    std::vector<std::string> names;
    for (const CountedProblem* problem : open) names.push_back(problem->op->name + " " + problem->text);
    throw refusal("plan {} does not name, and --strict forbids to measure:\n  {}", options.source,
                  fmt::join(names, "\n  "));
  }

  const Pool pool = asked.value_or(Pool::fastest);
  KnownTimes nothing;
  KnownTimes& known = options.known != nullptr ? *options.known : nothing;
  Chooser chooser{platform, nodes, known, pool == Pool::fastest ? edge_behind_a_library_us(platform) : 0};
  std::map<std::string, long> ours;  // for want of a vendor's, by op
  const bool chatty = !platform.description().is_host && pool != Pool::naive && pool != Pool::tiled;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const CountedProblem& problem = *open[i];
    std::vector<std::string> refusals;
    chooser.out_of_memory = false;
    std::optional<Choice> best = chooser.choose(problem, pool, refusals);
    if (!best && pool == Pool::baseline) {
      best = chooser.choose(problem, Pool::own, refusals);
      if (best) ours[problem.op->name] += problem.count;
    }
    if (!best) {
      const std::string why = fmt::format("nothing here runs {} {} {}:\n  {}", problem.op->name,
                                          to_string(problem.dtype), problem.text, fmt::join(refusals, "\n  "));
      if (chooser.out_of_memory) throw OutOfMemory(why);
      throw InvalidInput(why);
    }
    if (chatty)
      fmt::print(stderr, "[{}/{}] {} {}: {}\n", i + 1, open.size(), problem.op->name, problem.text,
                 best->implementation->name);
    entries[problem_id(problem)] = best->implementation->name;
    choices_[problem_id(problem)] = *best;
  }
  measured_ = chooser.measured;
  if (named && !open.empty()) write_plan(options.source, entries);
  if (ours.empty()) return;
  fallbacks_ = fallbacks_text(ours);
  fmt::print(stderr, "plan baseline: {}\n", fallbacks_);
}

void fuse_norms_that_pay(Network& network, Platform& platform, const Suite& nodes, const Plan::Options& options) {
  if (options.strict) return;
  std::map<ProblemId, double> times;
  const auto time_of = [&](const CountedProblem& problem) {
    const auto [place, added] = times.try_emplace(problem_id(problem));
    if (added)
      place->second = Plan(platform, nodes, {problem}, options)
                          .choice(problem_id(problem))
                          .warm_us.value_or(std::numeric_limits<double>::infinity());
    return place->second;
  };
  const auto pays = [&](const std::vector<Change>& changes) {
    if (!folds_skips(nodes, platform, options.source, changes.front().node->dtype)) return false;
    double apart = 0, fused = 0;
    for (const auto& [node, problem, inputs] : changes) {
      fused += time_of({node->op, node->op->print(problem), node->dtype, 1});
      apart += time_of({node->op, node->text, node->dtype, 1});
    }
    return fused < apart;
  };
  Network other = network;  // a measurement may fail
  fuse(other, {.fuse_norms = NormFusion{.pays = pays}});
  network = std::move(other);
}

std::unique_ptr<Ready> Plan::make_ready(Platform& platform, const Node& node) const {
  const Implementation& chosen = *choice(problem_id(node)).implementation;
  KnownTimes nothing;
  if (!chosen.is(Kind::baseline)) return chosen.make(platform, node.problem, node.dtype, nothing);
  Fixture fixture(platform, entry_of(*nodes_, node.op->name), node.problem, node.dtype, kSeed);
  Verifier verifier(fixture, kQuickVerification);  // to tell a wrong algorithm from a right one
  auto ready = BoundCase(fixture, chosen, &verifier).take_ready();
  ready->use(Caches::warm);
  return ready;
}

}  // namespace noisefloor::pipeline
