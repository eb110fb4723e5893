// What the cases of a problem have in common behind their times: counters, and who is compared with whom.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/measure/case_runner.h"
#include "bench/measure/worker.h"

namespace noisefloor {
namespace {

// Of those that have a time; null where there is none.
const Case* fastest(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& rows, bool baseline,
                    bool plugin) {
  const Case* best = nullptr;
  double best_us = 0;
  for (const Case& one : cases) {
    const auto row = rows.find(one.id());
    if (row == rows.end() || row->second.status != Outcome::ok || !row->second.time_warm_us ||
        !row->second.lossy.empty())
      continue;
    if (one.implementation->is(Kind::baseline) != baseline || one.implementation->plugin.empty() == plugin) continue;
    if (one.entry->whole_networks && one.implementation->name == kMixedPlan) continue;
    if (best == nullptr || *row->second.time_warm_us < best_us) best = &one, best_us = *row->second.time_warm_us;
  }
  return best;
}

// Of kept rows those with one that was not kept, or that was compared by other code.
void forget_stale_comparisons(std::vector<CaseResult>& results, const PhaseVersions& versions) {
  for (CaseResult& one : results) {
    if (one.row.paired_with.empty()) continue;
    const auto holds = [](const CaseResult& result) { return result.kept && result.row.status == Outcome::ok; };
    const bool stands = holds(one) && has_phase(one.row.phases, "pair", versions) &&
                        std::ranges::any_of(results, [&](const CaseResult& other) {
                          return holds(other) && other.row.variant == one.row.paired_with;
                        });
    if (!stands) forget_comparison(one.row);
  }
}

void write_ratios(const Ratio& cold, const Ratio& warm, const std::string& paired_with, SweepRow& row) {
  row.paired_with = paired_with;
  row.speedup_cold = cold.value, row.speedup_cold_low = cold.low, row.speedup_cold_high = cold.high;
  row.speedup_warm = warm.value, row.speedup_warm_low = warm.low, row.speedup_warm_high = warm.high;
}

}  // namespace

std::vector<Pair> pairs_to_compare(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& rows) {
  const Case *const ours = fastest(cases, rows, false, false), *const theirs = fastest(cases, rows, true, false);
  std::vector<Pair> pairs = {{ours, theirs},
                             {fastest(cases, rows, false, true), theirs, true, false},
                             {ours, fastest(cases, rows, true, true), false, true}};
  std::erase_if(pairs, [](const Pair& one) { return one.ours == nullptr || one.theirs == nullptr; });
  return pairs;
}

ProblemResult CaseRunner::run_problem(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& there,
                                      const std::function<void(const CaseResult&)>& on_timed) {
  std::vector<const Case*> wanted;
  for (const Case& one : cases)
    if (!there.contains(one.id())) wanted.push_back(&one);
  ProblemResult result;
  const bool raised = raised_;
  const auto lost = [&] {  // what the others have no counters and no comparison of is taken anew
    result.device_lost = std::ranges::any_of(result.cases, &CaseResult::device_lost);
    if (result.device_lost) std::erase_if(result.cases, [](const CaseResult& one) { return !one.device_lost; });
    return result.device_lost;
  };
  for (const Case* one : wanted) {
    on_timed(result.cases.emplace_back(take_times(*one, std::nullopt)));
    if (lost()) return result;
    // What is kept is missed by others, so not where memory is short.
    if (problem_ && 2 * platform_->free_bytes() < platform_->description().memory_bytes)
      problem_->bound.erase(one->implementation->name);
  }
  {
    CaseCounters::Pass pass;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      count(*wanted[i], result.cases[i], pass);
      if (lost()) return result;
    }
  }
  if (raised_ != raised)  // those before it were placed below other ceilings
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (result.cases[i].row.status == Outcome::ok) place(*wanted[i], result.cases[i].row);
  forget_stale_comparisons(result.cases, options_.phases);
  if (options_.compare) compare(cases, there, result);
  return result;
}

void CaseRunner::count(const Case& test_case, CaseResult& result, CaseCounters::Pass& pass) {
  const Spending spending(result);
  SweepRow& row = result.row;
  if (row.status != Outcome::ok || test_case.implementation->elsewhere() || options_.warm_only) return;
  if (result.kept && has_phase(row.phases, "counters", options_.phases)) return;
  if (counters_.mode() == CounterMode::off && !options_.count_one) return;
  if (test_case.entry->whole_networks) {  // a pass over hundreds of kernels for each group of metrics: half a minute
    row.counter_status = kNotCollected;
    return;
  }
  progress_.enter("counters");
  attempt(test_case, result, [&] {
    std::shared_ptr<BoundCase> bound;
    try {
      bound = require_bound(test_case);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::runtime_error& error) {  // it costs the columns, not the row
      row.counter_status = kNotCollected;
      return add_note(fmt::format("counters: {}", error.what()), result);
    }
    problem_->fixture.move_to(0);
    bound->use_inputs(0);
    if (options_.count_one)
      options_.count_one(test_case, *bound, row);
    else
      counters_.count(pass, *platform_, test_case, *bound, row);
    if (row.counter_status.starts_with(to_string(CounterStatus::ok)))
      set_phase(row.phases, "counters", options_.phases);
    platform_->synchronize();  // what it left behind would be the next one's
  });
  if (row.status == Outcome::ok) return;
  known_.add(row);
  say(fmt::format("{}: when it was counted: {}", row.name(), row.reason));
}

void CaseRunner::compare(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& there,
                         ProblemResult& result) {
  std::map<CaseId, SweepRow> rows;
  for (const Case& one : cases)
    if (const auto found = there.find(one.id()); found != there.end()) rows.insert(*found);
  for (const CaseResult& one : result.cases) rows.insert_or_assign(one.row, one.row);
  const auto new_case = [&](const Case& one) {  // null: its row was written before
    const auto found = std::ranges::find_if(
        result.cases, [id = one.id()](const CaseResult& other) { return other.row.case_id() == id; });
    return found == result.cases.end() ? nullptr : &*found;
  };
  std::vector<Pair> pairs = pairs_to_compare(cases, rows);
  std::erase_if(pairs, [&](const Pair& one) {
    const CaseResult *const own = new_case(*one.ours), *const theirs = new_case(*one.theirs);
    const bool kept = own != nullptr && theirs != nullptr && own->row.paired_with == theirs->row.variant &&
                      theirs->row.paired_with == own->row.variant;
    return kept || (!(one.own_row && own) && !(one.their_row && theirs));
  });
  if (problem_)  // what no comparison needs makes room
    std::erase_if(problem_->bound, [&](const auto& kept) {
      return std::ranges::none_of(pairs, [&](const Pair& one) {
        return kept.first == one.ours->implementation->name || kept.first == one.theirs->implementation->name;
      });
    });
  for (const Pair& one : pairs)
    if (!result.device_lost)
      compare(one, one.own_row ? new_case(*one.ours) : nullptr, one.their_row ? new_case(*one.theirs) : nullptr,
              result);
}

void CaseRunner::compare(const Pair& pair, CaseResult* own, CaseResult* baseline, ProblemResult& result) {
  std::optional<Spending> spending;
  if (CaseResult* const payer = own != nullptr ? own : baseline; payer != nullptr) spending.emplace(*payer);
  const std::string ours = pair.ours->implementation->name, theirs = pair.theirs->implementation->name;
  const std::string who = fmt::format("{}: {} against {}", ProblemId(pair.ours->id()).name(), ours, theirs);
  try {
    const PairResult ratios = run_pair(*pair.ours, *pair.theirs);
    if (!ratios.wrong.empty()) {  // of rows that were right when they were alone; of ours the exit code says it
      result.wrong_comparisons += ratios.ours_wrong;
      throw std::runtime_error(ratios.wrong);
    }
    if (own != nullptr) write_ratios(ratios.cold, ratios.warm, theirs, own->row);
    if (baseline != nullptr) write_ratios(ratios.cold.inverse(), ratios.warm.inverse(), ours, baseline->row);
    for (CaseResult* const side : {own, baseline})
      if (side != nullptr) set_phase(side->row.phases, "pair", options_.phases);
    say(fmt::format("{}: cold {}, warm {}, {} rounds", who, text_of(ratios.cold), text_of(ratios.warm), ratios.rounds));
  } catch (const DeviceError& error) {
    say(fmt::format("{}: {}", who, error.what()));
    result.device_lost = error.lost();
  } catch (const std::runtime_error& error) {
    say(fmt::format("{}: no comparison: {}", who, error.what()));
  }
}

PairResult CaseRunner::run_pair(const Case& ours, const Case& theirs) {
  const auto worker_of = [&](const Case& one) {
    return one.implementation->worker ? one.implementation->worker.get() : options_.worker;
  };
  if (ours.implementation->elsewhere() && theirs.implementation->elsewhere() && worker_of(ours) != nullptr &&
      worker_of(ours) == worker_of(theirs))
    throw LibraryRefused("both are of one process, which has one case at a time");
  std::array<std::unique_ptr<Contender>, 2> sides;
  for (const std::size_t side : {0u, 1u}) {
    const Case& one = side == 0 ? ours : theirs;
    if (!one.implementation->elsewhere()) {
      std::shared_ptr<BoundCase> bound = require_bound(one);
      bound->use_inputs(0);
      sides[side] = std::make_unique<BoundContender>(std::move(bound), problem_->verifier);
      continue;
    }
    if (worker_of(one) == nullptr) throw LibraryMissing(options_.why_no_worker);
    auto in_worker = std::make_unique<WorkerCase>(*worker_of(one), one);
    if (const Verdict& verdict = in_worker->verdict(); !verdict.correct())
      return {{},
              {},
              0,
              fmt::format("{} before the first block: {}", side == 0 ? "ours" : "theirs", verdict.reason),
              side == 0};
    sides[side] = std::move(in_worker);
  }
  if (edges_) edges_->settle(kEdgeSamples);
  return paired_run(*sides[0], *sides[1]);
}

}  // namespace noisefloor
