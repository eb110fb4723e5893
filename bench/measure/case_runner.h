// One case from beginning to end: verified, timed cold and warm, its kernels' resources read, its counters collected.
// The result is a row of sweep.csv and the raw samples behind it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/ceilings/ceilings.h"
#include "bench/measure/case_counters.h"
#include "bench/measure/case_progress.h"
#include "bench/measure/case_result.h"
#include "bench/measure/duellists.h"
#include "bench/measure/platform_timing.h"
#include "bench/measure/short_edges.h"
#include "bench/measure/stopping_rule.h"
#include "bench/measure/uncounted_cases.h"
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
  bool watch_others = true;  // on a host: samples whose threads waited for a core are taken again
  bool warm_only = false;    // no cold times, resources, counters or roof: what a plan asks for
  Worker* worker = nullptr;  // for the implementations that are in one; must outlive the runner
  std::string why_no_worker = "it is in another program, which was not started";
  std::size_t places = 0;       // that the tensors of timed batches lie at in turns; 0: many on a GPU, one on a host
  Worker* neighbour = nullptr;  // another process on this GPU, for short_edges.h; must outlive the runner
  // Where it is set, and half of the memory is free, counters of a problem's cases are taken together, behind the last
  // of them that is measured here: a row says `cut_off` until then, and is told again with them.
  std::function<void(const std::vector<SweepRow>&)> on_counted;
  UncountedCases::CountOne count_one;  // one of these; none: by CUPTI, where that can be had
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

  // From then on a library's search ends without a result.
  void search_until(std::chrono::steady_clock::time_point until) { search_until_ = until; }

  // Takes the counters that cases wait for, unless `next` is one more of them. False where that cost the device.
  bool settle_counters(const Case* next = nullptr);

  // Of two cases of one problem, in turns. Throws what making one of them ready throws, and DeviceError.
  DuelResult duel(const Case& ours, const Case& theirs);

  // What to tell the user once: why counters are missing.
  const std::string& counter_message() const { return counters_.message(); }

 private:
  CaseResult measure(const Case& test_case, std::optional<double> to_beat_us);
  void measure_here(const Case&, CaseResult&, std::optional<double> to_beat_us);
  void measure_in_worker(const Case&, CaseResult&);
  void measure_of_plugin(const Case&, CaseResult&);
  bool take_replay(BoundCase&, CaseResult&);
  bool may_wait_for_counters(const BoundCase&) const;
  void require_fixture(const Case&);
  void drop_fixture();
  void time(const Case&, BoundCase&, CaseResult&);
  TimingOptions timing_options() const;
  void time_warm_only(BoundCase&, CaseResult&, std::optional<double> to_beat_us);
  void say_of_edges();
  using Phase = std::function<void()>;
  bool time_phase(const char* name, std::size_t inputs, BoundCase&, CaseResult&, const Phase&);
  void place(const Case&, SweepRow&) const;

  Platform* platform_;
  const Ceilings* ceilings_;
  RunnerOptions options_;
  CaseProgress progress_;
  CaseCounters counters_;
  std::unique_ptr<DeviceClocks> clocks_;  // none on the host
  std::unique_ptr<ShortEdges> edges_;     // none there, either
  std::string said_of_edges_;
  KnownTimes known_;
  std::chrono::steady_clock::time_point search_until_ = std::chrono::steady_clock::time_point::max();
  // The fixture of the last problem: the implementations of one problem come one after another.
  ProblemId fixture_of_;
  std::unique_ptr<Fixture> fixture_;
  std::unique_ptr<Verifier> verifier_;
  KeptCases kept_;            // on it
  UncountedCases uncounted_;  // on it too
};

}  // namespace noisefloor
