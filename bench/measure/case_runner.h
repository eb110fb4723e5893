// A problem from beginning to end: all of its cases verified and timed, then all counted, then the best two compared in
// pairs. Or one case alone. The result is rows of sweep.csv and the raw samples behind them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/ceilings/ceilings.h"
#include "bench/measure/case_counters.h"
#include "bench/measure/case_progress.h"
#include "bench/measure/case_result.h"
#include "bench/measure/contender.h"
#include "bench/measure/pair.h"
#include "bench/measure/signature.h"
#include "bench/measure/verify.h"
#include "bench/platform/platform.h"

namespace noisefloor {

class Worker;

struct RunnerOptions {
  StoppingRule cold;
  StoppingRule warm{0.005, 10, 200, 0.3};
  CounterMode counters = CounterMode::automatic;
  std::uint64_t seed = 1;
  VerifierOptions verifier;
  GivenTensors given;  // inputs of a user; must outlive the runner
  // Called where an implementation's outputs were found right, before anything is timed.
  std::function<void(const Case&, Fixture&)> on_verified;
  // Gets what a user should know of a case that takes long; none: nothing is said.
  CaseProgress::Say say;
  CaseProgress::Clock progress_clock;  // none: the steady one
  double throttle_retry_seconds = 5;
  bool watch_others = true;   // on a host: samples whose threads waited for a core are taken again
  bool warm_only = false;     // no cold times, resources, counters or roof: what a plan asks for
  bool prepare_each = false;  // weights are prepared before each launch, in its time: a launch in between writes them
  Worker* worker = nullptr;   // for the implementations that are in one; must outlive the runner
  std::string why_no_worker = "it is in another program, which was not started";
  std::size_t slots = 0;        // that the tensors of timed batches lie at in turns; 0: many on a GPU, one on a host
  Worker* neighbour = nullptr;  // another process on this GPU, for EdgeLatency; must outlive the runner
  bool compare = true;          // of a problem the best two, in pairs
  CodeWatch* code = nullptr;    // for signatures of launches; must outlive the runner; null: such rows have none
  PhaseVersions phases = kPhaseVersions;
  // The row of an earlier run that may be kept, which must outlive the runner; null where there is none.
  std::function<const EarlierRow*(const CaseId&)> earlier = {};
  // Of a host, whose ceilings other programs may have lowered: measures them again, called where a row beats them.
  std::function<void()> raise_ceilings;
  // Of a case that was timed, in place of counting by CUPTI, and though there is none.
  std::function<void(const Case&, BoundCase&, SweepRow&)> count_one;
};

// Two cases of a problem that are compared, and which of their rows keep the ratio.
struct Pair {
  const Case *ours, *theirs;
  bool own_row = true, their_row = true;
};

// The fastest of ours, warm, against the fastest baseline; and the fastest plugin of either side against the other
// side's of these two. Only the plugin's row keeps that: a plugin changes no row of ours.
std::vector<Pair> pairs_to_compare(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& rows);

struct ProblemResult {
  std::vector<CaseResult> cases;  // whole
  bool device_lost = false;
  int wrong_comparisons = 0;  // in which a result of ours was wrong
};

// What a problem's implementations, which come one after another, have in common.
struct MeasuredProblem {
  MeasuredProblem(Platform& platform, const Case& one, const RunnerOptions& options)
      : id(one.id()),
        fixture(platform, *one.entry, one.problem, one.dtype, options.seed, options.given,
                one.entry->whole_networks ? 1 : options.slots),
        verifier(fixture, options.verifier) {}
  ProblemId id;
  Fixture fixture;
  Verifier verifier;
  // By variant, as they were timed. The others are made ready anew where they are needed.
  std::map<std::string, std::shared_ptr<BoundCase>> bound = {};
};

class CaseRunner {
 public:
  // `ceilings` may be null: the roofline columns then stay empty. Throws CountersUnavailable when counters are required
  // and cannot be had.
  CaseRunner(Platform& platform, const Ceilings* ceilings, RunnerOptions options);
  ~CaseRunner();

  // Times that networks' plans take rather than measure, beside those of the cases that ran here.
  void know(const SweepRow& row) { known_.add(row); }

  // Never throws for what the case does wrong; the row's status says it. With warm_only, a case that takes more than
  // twice `to_beat_us` is timed once.
  CaseResult run(const Case& test_case, std::optional<double> to_beat_us = std::nullopt);

  // The cases of one problem that are not `there`, in their order; `on_timed` gets each before its counters. A
  // comparison with a row that is there goes into the new row alone. Where one of them costs the device, it is the only
  // result: another process is to measure the others.
  ProblemResult run_problem(
      const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& there,
      const std::function<void(const CaseResult&)>& on_timed = [](const CaseResult&) {});

  // Of two cases of one problem, in turns. Throws what making one of them ready throws, and DeviceError.
  PairResult run_pair(const Case& ours, const Case& theirs);

  // What to tell the user once: why counters are missing.
  const std::string& counter_message() const { return counters_.message(); }

 private:
  CaseResult take_times(const Case&, std::optional<double> to_beat_us);
  CaseResult measure(const Case&, std::optional<double> to_beat_us);
  void attempt(const Case&, CaseResult&, const std::function<void()>& step);
  void measure_here(const Case&, CaseResult&, std::optional<double> to_beat_us);
  void measure_in_worker(const Case&, CaseResult&);
  void measure_of_plugin(const Case&, CaseResult&);
  bool take_replay(Contender&, CaseResult&);
  const EarlierRow* earlier_of(const Case&) const;
  // Whether the earlier row stands, but maybe for its verification and some phases.
  static bool take_over(const EarlierRow*, CaseResult&);
  void sign(const Case&, BoundCase*, CaseResult&) const;  // null: only what needs no launch
  Verdict verify(BoundCase&, CaseResult&);
  std::vector<std::string> phases_to_take(const Case&, bool serial, const CaseResult&) const;
  MeasuredProblem& require_problem(const Case&);
  std::shared_ptr<BoundCase> require_bound(const Case&);
  bool make_room(const Case&);
  void count(const Case&, CaseResult&, CaseCounters::Pass&);
  void compare(const std::vector<Case>&, const std::map<CaseId, SweepRow>& there, ProblemResult&);
  void compare(const Pair&, CaseResult* own, CaseResult* baseline, ProblemResult&);
  bool time(const Case&, Contender&, bool serial, const EarlierRow*, CaseResult&);
  bool take_phases(const Case&, Contender&, bool serial, const EarlierRow*, CaseResult&);
  TimingOptions timing_options() const;
  void time_warm_only(Contender&, CaseResult&, std::optional<double> to_beat_us);
  void say(const std::string& message) const;
  using Phase = std::function<void()>;
  bool time_phase(const char* name, std::size_t inputs, Contender&, CaseResult&, const Phase&);
  void place(const Case&, SweepRow&);

  Platform* platform_;
  const Ceilings* ceilings_;
  RunnerOptions options_;
  CaseProgress progress_;
  CaseCounters counters_;
  Signatures signatures_;
  std::unique_ptr<EdgeLatency> edges_;  // none on the host
  bool raised_ = false;                 // the ceilings, for a row that is above the roof; what is above it then stays
  KnownTimes known_;
  std::unique_ptr<MeasuredProblem> problem_;  // the last one
};

}  // namespace noisefloor
