#include "bench/sweep/alternate.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <optional>

#include "bench/measure/case_result.h"
#include "bench/measure/pair.h"

namespace noisefloor {
namespace {

// The cases that are resolved after kPasses are left out of the others; those that still look slower after kMostPasses
// get more.
constexpr int kPasses = 5, kMostPasses = 16, kMostPassesSlower = 32;
constexpr int kRounds = 4;  // of a pass: blocks in the order A B B A, B A A B, ...

// A build's own words, which one it is, and what they make of the case.
struct CannotPair : std::runtime_error {
  CannotPair(bool of_old, const std::string& why, BuildVerdict its_verdict, bool killed = false)
      : std::runtime_error(why), is_old(of_old), verdict(its_verdict), new_was_killed(killed && !of_old) {}
  std::string words(const char* what) const {
    return fmt::format("the {} {}: {}", is_old ? "old" : "new", what, this->what());
  }
  bool is_old;
  BuildVerdict verdict;
  bool new_was_killed;
};

// `wrong` is the new build's alone: an old one that fails says nothing of the new one.
BuildVerdict failed(bool is_old) {
  return is_old ? BuildVerdict::missing : BuildVerdict::wrong;
}

// By a person, a scheduler, or a machine short of memory.
bool ended_from_outside(const WorkerGone& error) {
  const std::string why = error.what();
  for (const int number : {SIGKILL, SIGTERM, SIGINT, SIGHUP})
    if (why.find(fmt::format("was killed by signal {} ", number)) != std::string::npos) return true;
  return false;
}

template <class Ask>
auto asked(bool is_old, const Ask& ask) {
  try {
    return ask();
  } catch (const Throttled& error) {
    throw CannotPair(is_old, error.what(), BuildVerdict::unresolved);
  } catch (const WorkerGone& error) {
    const bool killed = ended_from_outside(error);
    throw CannotPair(is_old, error.what(), killed ? BuildVerdict::unresolved : failed(is_old), killed);
  } catch (const std::runtime_error& error) {
    const bool lacks = dynamic_cast<const LibraryRefused*>(&error) || dynamic_cast<const LibraryMissing*>(&error);
    throw CannotPair(is_old, error.what(), lacks && !is_old ? BuildVerdict::gone : failed(is_old));
  }
}

Verdict right(bool is_old, const Verdict& verdict) {
  if (!verdict.correct()) throw CannotPair(is_old, verdict.reason, failed(is_old));
  return verdict;
}

// A case in a build, right at its first launch. It says which build failed.
class BuildSide final : public Contender {
 public:
  BuildSide(Worker& build, bool is_old, const PairedCase& paired)
      : is_old_(is_old), case_(asked(is_old, [&] { return paired.make_ready(build); })) {
    (void)right(is_old, case_->verdict());
  }
  std::vector<double> cold(int samples) override {
    return asked(is_old_, [&] { return case_->cold(samples); });
  }
  std::vector<double> warm(int samples, int repeats, Edges edges) override {
    auto times = asked(is_old_, [&] { return case_->warm(samples, repeats, edges); });
    if (const auto mhz = case_->sm_clock_mhz()) mhz_sum_ += *mhz, ++clocks_;
    return times;
  }
  double mean_mhz() const { return clocks_ > 0 ? mhz_sum_ / clocks_ : 0; }  // behind warm samples; 0: it does not say
  void poison(std::size_t inputs) override {
    asked(is_old_, [&] { case_->poison(inputs); });
  }
  Verdict judge() override {
    return right(is_old_, asked(is_old_, [&] { return case_->judge(); }));
  }

 private:
  bool is_old_;
  std::unique_ptr<WorkerCase> case_;
  double mhz_sum_ = 0;
  int clocks_ = 0;
};

// One pass of one case.
void pair_once(Worker& old_build, Worker& new_build, bool old_first, const PairedCase& test_case, BuildPair& pair) {
  std::optional<BuildSide> older, newer;
  if (old_first) older.emplace(old_build, true, test_case);
  try {
    newer.emplace(new_build, false, test_case);
  } catch (const CannotPair& error) {  // it is gone only where the old build has it
    if (!old_first && error.verdict == BuildVerdict::gone) older.emplace(old_build, true, test_case);
    throw;
  }
  if (!old_first) older.emplace(old_build, true, test_case);
  PairOptions options;
  options.fewest_rounds = options.most_rounds = kRounds;
  const PairResult result = paired_run(*newer, *older, options);
  pair.cold.push_back(result.cold.value);
  pair.warm.push_back(result.warm.value);
  if (older->mean_mhz() > 0 && newer->mean_mhz() > 0)
    pair.cycles.push_back(result.warm.value * older->mean_mhz() / newer->mean_mhz());
}

// Whether a case takes part in pass number `pass`, from 0.
bool is_open(const BuildPair& pair, int pass, double resolve) {
  if (!pair.why_not.empty()) return false;
  if (pass >= kMostPasses && !looks_slower(pair, resolve)) return false;
  if (static_cast<int>(pair.warm.size()) < kPasses) return true;
  const auto so = [&](PairVerdict verdict) {
    return verdict_of(pair.warm, resolve) == verdict || verdict_of(pair.cold, resolve) == verdict;
  };
  return so(PairVerdict::unresolved) && !so(PairVerdict::slower);
}

// What kept a case from a time in its passes: the last reason, and how often.
struct Disturbed {
  std::string why;
  std::string killed;                  // the last reason where the new build was killed
  int passes = 0, new_was_killed = 0;  // those that ended without a time, and with that
};

// Of a case with too few times. What kills the new build in every pass and never the old one is no accident: it may
// take more memory.
void leave_without_times(BuildPair& pair, const Disturbed& disturbed) {
  if (disturbed.new_was_killed >= kPasses && disturbed.new_was_killed == disturbed.passes && pair.warm.empty()) {
    pair.why_not = fmt::format("in each of {} passes {}", disturbed.passes, disturbed.killed);
    pair.without_times = BuildVerdict::gone;
    return;
  }
  pair.why_not = disturbed.why.empty() ? "too few passes" : disturbed.why;
  pair.without_times = BuildVerdict::unresolved;
}

void settle_same_code(Worker& old_build, Worker& new_build, const std::vector<PairedCase>& cases,
                      std::vector<BuildPair>& pairs, const std::function<void(const std::string&)>& say) {
  std::size_t same = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].signature) continue;
    try {
      std::string old_refuses, new_refuses;
      const auto older = cases[i].signature(old_build, old_refuses), newer = cases[i].signature(new_build, new_refuses);
      if (!old_refuses.empty() && old_refuses == new_refuses) {
        pairs[i].why_not = old_refuses;
        pairs[i].without_times = BuildVerdict::neither;
      }
      if (!older || older != newer) continue;
    } catch (const WorkerGone&) {  // the passes will say how
      continue;
    }
    ++same;
    pairs[i].why_not = "the same machine code";
    pairs[i].without_times = BuildVerdict::same_code;
  }
  if (same > 0)
    say(fmt::format("{} of {} cases run the same machine code, and are not timed (--all times them)", same,
                    cases.size()));
}

}  // namespace

std::vector<BuildPair> alternate(const Builds& builds, const std::vector<PairedCase>& cases, double resolve,
                                 double budget_seconds, const std::function<void(const std::string&)>& say) {
  std::vector<BuildPair> pairs;
  for (const PairedCase& one : cases) pairs.push_back({one.name, {}, {}, {}});
  std::vector<Disturbed> disturbed(cases.size());
  const auto start = std::chrono::steady_clock::now();
  bool spent = false;
  for (int pass = 0; pass < kMostPassesSlower && !spent; ++pass) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < cases.size(); ++i)
      if (is_open(pairs[i], pass, resolve)) open.push_back(i);
    if (open.empty()) break;
    say(fmt::format("pass {} of {} to {}: {} cases", pass + 1, kPasses,
                    pass < kMostPasses ? kMostPasses : kMostPassesSlower, open.size()));
    // Whoever comes first has its memory first, in the one pass as in the other.
    const bool old_first = pass % 2 == 0;
    std::unique_ptr<Worker> first, second;
    try {
      first = old_first ? builds.start_old() : builds.start_new();
      second = old_first ? builds.start_new() : builds.start_old();
    } catch (const InvalidInput& error) {
      if (pass == 0) throw;
      say(fmt::format("{}; what the passes before say stands", error.what()));
      for (const std::size_t i : open) disturbed[i].why = error.what();
      break;
    }
    Worker &old_build = old_first ? *first : *second, &new_build = old_first ? *second : *first;
    if (pass == 0) settle_same_code(old_build, new_build, cases, pairs, say);
    for (const std::size_t i : open) {
      if (!pairs[i].why_not.empty()) continue;
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (elapsed.count() > budget_seconds) spent = true;
      if (spent) {
        disturbed[i].why = "the budget was spent";
        continue;
      }
      try {
        pair_once(old_build, new_build, old_first, cases[i], pairs[i]);
      } catch (const CannotPair& error) {
        if (error.verdict == BuildVerdict::unresolved) {  // in this pass
          Disturbed& of_case = disturbed[i];
          of_case.why = error.words(builds.what);
          ++of_case.passes;
          if (error.new_was_killed) of_case.killed = of_case.why, ++of_case.new_was_killed;
          continue;
        }
        pairs[i].why_not = error.words(builds.what);
        pairs[i].without_times = error.verdict;
      }
    }
  }
  if (spent) say("the budget was spent; what the passes before say stands");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!pairs[i].why_not.empty() || static_cast<int>(pairs[i].warm.size()) >= kPasses) continue;
    leave_without_times(pairs[i], disturbed[i]);
  }
  return pairs;
}

}  // namespace noisefloor
