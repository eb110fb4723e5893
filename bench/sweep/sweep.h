// The cases of a sweep as Google Benchmark runs them, each through the case runner, with progress and the time left.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/measure/case_runner.h"
#include "bench/sweep/pairings.h"
#include "reports/run/run_folder.h"

namespace noisefloor {

class Sweep {
 public:
  struct Options {
    double budget_seconds = 0;  // 0: none
    bool repetitions = false;   // --benchmark_repetitions was given
    bool duels = true;          // of each problem, by pairings.h, in turns
    bool report_all = false;    // Google Benchmark's reporters also get the cases that the run folder has a row for
  };
  Sweep(CaseRunner& runner, RunFolder& folder, Options options);

  // Registers the cases that the run folder has no row for, those of a problem one behind the other; with `report_all`
  // the others too, which are not measured again: what is reported does not depend on how often the sweep was
  // interrupted.
  void register_cases(const std::vector<Case>& cases);
  // Runs all of them through Google Benchmark. Each reporter may be null.
  void run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file);

  std::size_t already_done() const { return already_done_; }
  std::size_t left_by_budget() const { return left_by_budget_; }
  // Of cases whose first repetition is the one in the run folder.
  int failed_repetitions() const { return failed_repetitions_; }
  // In which a result of ours was wrong.
  int failed_duels() const { return failed_duels_; }
  bool device_lost() const { return device_lost_; }

 private:
  std::chrono::steady_clock::time_point end_of_budget() const;
  void leave(benchmark::State& state);
  void run_case(const Case& test_case, benchmark::State& state);
  void report_known(const CaseId& id, benchmark::State& state);
  void report(const SweepRow& row, std::size_t samples, benchmark::State& state) const;
  void report_progress(const SweepRow& row);
  // Behind the last of a problem's cases.
  void duel(const ProblemId& problem);
  void duel(const ProblemId& problem, const Pairing& pairing);

  CaseRunner* runner_;
  RunFolder* folder_;
  Options options_;
  std::chrono::steady_clock::time_point start_;
  std::map<ProblemId, std::vector<Case>> cases_;  // all, also those that have a row
  std::map<ProblemId, std::size_t> left_;         // that are registered and have not run
  std::size_t already_done_ = 0, registered_ = 0, total_ = 0, done_ = 0, left_by_budget_ = 0;
  int failed_repetitions_ = 0, failed_duels_ = 0;
  bool device_lost_ = false;
  std::set<CaseId> reported_;  // of those that have a row
};

}  // namespace noisefloor
