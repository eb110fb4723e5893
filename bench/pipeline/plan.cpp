#include "bench/pipeline/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/verify.h"
#include "bench/pipeline/plan_file.h"
#include "bench/platform/build_info.h"

namespace noisefloor::pipeline {
namespace {

constexpr int kTimings = 5, kRepeats = 10;
constexpr std::uint64_t kSeed = 1;

ProblemId id_of(const CountedProblem& problem) {
  return {problem.op->name, problem.text, to_string(problem.dtype)};
}

enum class Pool { own, baseline, all, naive };

Pool pool_of(const std::string& source) {
  if (source == "own") return Pool::own;
  if (source == "baseline") return Pool::baseline;
  return source == "naive" ? Pool::naive : Pool::all;
}

bool in_pool(const Candidate& candidate, Pool pool, bool host) {
  if ((candidate.kind == Kind::host) != host) return false;
  if (pool == Pool::naive) return host || candidate.kind == Kind::naive;
  return pool == Pool::all || (candidate.baseline != nullptr) == (pool == Pool::baseline);
}

std::optional<SweepRow> why_not(Platform& platform, const CountedProblem& problem, const Candidate& candidate) {
  const Case test_case{candidate, problem.op->parse(problem.text), problem.dtype, problem.text, ""};
  return refused(test_case, platform.description(), platform.arch_text());
}

// Times candidates of one problem, on the same tensors and against the same oracle.
class Trial {
 public:
  Trial(Platform& platform, const CountedProblem& problem)
      : platform_(&platform),
        fixture_(platform, *problem.op, problem.op->parse(problem.text), problem.dtype, kSeed),
        verifier_(fixture_) {}

  // One that takes more than twice `to_beat` is timed once.
  KnownTimes::Entry time(const Candidate& candidate, std::optional<double> to_beat) {
    BoundCase bound(fixture_, candidate);
    if (const Verdict verdict = verifier_.verify(bound); !verdict.correct)
      return {std::nullopt, "incorrect: " + verdict.reason};
    const double once = platform_->time_warm(bound.launch(true), 1, 1).front();
    if (to_beat && once > 2 * *to_beat) return {once, {}};
    std::vector<double> times = platform_->time_warm(bound.launch(true), kTimings, kRepeats);
    std::nth_element(times.begin(), times.begin() + kTimings / 2, times.end());
    return {times[kTimings / 2], {}};
  }

 private:
  Platform* platform_;
  Fixture fixture_;
  Verifier verifier_;
};

struct Chosen {
  Candidate candidate;
  std::optional<double> warm_us;  // none where it had no rival
};

// Chooses the fastest correct candidate of a pool.
class Chooser {
 public:
  Chooser(Platform& platform, Pool pool, KnownTimes& known) : platform_(&platform), pool_(pool), known_(&known) {}

  // nullopt when none runs the problem; `refusals` says why.
  std::optional<Chosen> choose(const CountedProblem& problem, std::vector<std::string>& refusals) {
    out_of_memory_ = false;
    std::vector<Candidate> able;
    for (const Candidate& candidate : candidates_of(*problem.op)) {
      if (!in_pool(candidate, pool_, platform_->description().is_host)) continue;
      if (const auto row = why_not(*platform_, problem, candidate))
        refusals.push_back(candidate.name + ": " + row->reason);
      else
        able.push_back(candidate);
    }
    if (able.size() == 1 && able.front().baseline == nullptr) return Chosen{able.front(), {}};
    std::unique_ptr<Trial> trial;  // made where something is to be measured
    std::optional<Chosen> best;
    // Ladders have their best last: begun with it, the slow ones are recognised by one launch.
    for (auto candidate = able.rbegin(); candidate != able.rend(); ++candidate) {
      const KnownTimes::Entry entry = time(problem, *candidate, best ? best->warm_us : std::nullopt, trial);
      if (!entry.warm_us) {
        refusals.push_back(candidate->name + ": " + entry.why_not);
        continue;
      }
      if (!best || *entry.warm_us < *best->warm_us) best = Chosen{*candidate, entry.warm_us};
    }
    return best;
  }

  int measured() const { return measured_; }
  // Whether a candidate of the last problem was out for want of memory alone: with a smaller batch it may do.
  bool out_of_memory() const { return out_of_memory_; }

 private:
  KnownTimes::Entry time(const CountedProblem& problem, const Candidate& candidate, std::optional<double> to_beat,
                         std::unique_ptr<Trial>& trial) {
    const CaseId id{id_of(problem), candidate.name};
    if (const KnownTimes::Entry* entry = known_->find(id)) return *entry;
    KnownTimes::Entry entry;
    ++measured_;
    try {
      if (!trial) trial = std::make_unique<Trial>(*platform_, problem);
      entry = trial->time(candidate, to_beat);
    } catch (const DeviceError& error) {
      if (error.lost()) throw;
      entry.why_not = error.what();
    } catch (const OutOfMemory& error) {  // others may do with less; and this one at another time, so nothing is known
      out_of_memory_ = true;
      return {std::nullopt, error.what()};
    } catch (const std::exception& error) {  // a library's refusal: this candidate is out, others may do
      entry.why_not = error.what();
    }
    known_->add(id, entry);
    return entry;
  }

  Platform* platform_;
  Pool pool_;
  KnownTimes* known_;
  int measured_ = 0;
  bool out_of_memory_ = false;
};

}  // namespace

Plan::Plan(Platform& platform, const std::vector<CountedProblem>& problems, const Options& options) {
  constexpr std::string_view kPools[] = {"own", "baseline", "fastest", "naive"};
  const bool named = std::find(std::begin(kPools), std::end(kPools), options.source) == std::end(kPools);
  PlanEntries entries;
  if (named) {
    entries = read_plan(options.source);
    if (const auto doubt = check_plan_origin(options.source, platform.description().name, build_info().commit))
      fmt::print(stderr, "{}\n", *doubt);
  }
  std::vector<std::string> wrong;
  std::vector<const CountedProblem*> open;
  for (const CountedProblem& problem : problems) {
    const auto entry = entries.find(id_of(problem));
    if (entry == entries.end()) {
      open.push_back(&problem);
      continue;
    }
    const auto candidates = candidates_of(*problem.op);
    const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const Candidate& candidate) { return candidate.name == entry->second; });
    if (chosen == candidates.end())
      wrong.push_back(
          fmt::format("{} {}: this build has no variant {}", problem.op->name, problem.text, entry->second));
    else if (const auto row = why_not(platform, problem, *chosen))
      wrong.push_back(
          fmt::format("{} {}: {} cannot run here: {}", problem.op->name, problem.text, chosen->name, row->reason));
    else
      choices_[id_of(problem)] = *chosen;
  }
  if (!wrong.empty()) throw InvalidInput(fmt::format("plan {}:\n  {}", options.source, fmt::join(wrong, "\n  ")));
  if (options.strict && !open.empty()) {
    std::vector<std::string> names;
    for (const CountedProblem* problem : open) names.push_back(problem->op->name + " " + problem->text);
    throw InvalidInput(fmt::format("plan {} does not name, and --strict forbids to measure:\n  {}", options.source,
                                   fmt::join(names, "\n  ")));
  }

  const Pool pool = pool_of(options.source);
  KnownTimes nothing;
  KnownTimes& known = options.known != nullptr ? *options.known : nothing;
  Chooser chooser(platform, pool, known), own(platform, Pool::own, known);
  const bool chatty = !platform.description().is_host && pool != Pool::naive;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const CountedProblem& problem = *open[i];
    std::vector<std::string> refusals;
    std::optional<Chosen> best = chooser.choose(problem, refusals);
    if (!best && pool == Pool::baseline) {
      best = own.choose(problem, refusals);
      if (best) fallbacks_[problem.op->name] += problem.count;
    }
    if (!best) {
      const std::string why = fmt::format("nothing here runs {} {} {}:\n  {}", problem.op->name,
                                          to_string(problem.dtype), problem.text, fmt::join(refusals, "\n  "));
      if (chooser.out_of_memory() || own.out_of_memory()) throw OutOfMemory(why);
      throw InvalidInput(why);
    }
    if (chatty)
      fmt::print(stderr, "[{}/{}] {} {}: {}\n", i + 1, open.size(), problem.op->name, problem.text,
                 best->candidate.name);
    entries[id_of(problem)] = best->candidate.name;
    choices_[id_of(problem)] = best->candidate;
    if (best->warm_us) warm_us_[id_of(problem)] = *best->warm_us;
  }
  measured_ = chooser.measured() + own.measured();
  if (named && !open.empty()) write_plan(options.source, entries);
  if (!fallbacks_.empty()) fmt::print(stderr, "plan baseline: {}\n", fallback_text());
}

std::string Plan::fallback_text() const {
  long nodes = 0;
  std::vector<std::string> ops;
  for (const auto& [op, count] : fallbacks_) {
    nodes += count;
    ops.push_back(fmt::format("{} {}", op, count));
  }
  return fmt::format("ours run {} nodes that no vendor here runs: {}", nodes, fmt::join(ops, ", "));
}

const Candidate& Plan::operator()(const Op& op, DType dtype, const std::string& text) const {
  return choices_.at({op.name, text, to_string(dtype)});
}

std::optional<double> Plan::warm_us(const Op& op, DType dtype, const std::string& text) const {
  const auto time = warm_us_.find({op.name, text, to_string(dtype)});
  return time == warm_us_.end() ? std::nullopt : std::optional(time->second);
}

}  // namespace noisefloor::pipeline
