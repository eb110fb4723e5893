// The cases of a sweep as Google Benchmark runs them, with progress and the time left. The first benchmark of a problem
// measures all of its cases, whose rows are then written together; the others report theirs. A whole network, which
// takes minutes, is measured and written row by row.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/measure/case_runner.h"
#include "reports/run/run_folder.h"

namespace noisefloor {

class Sweep {
 public:
  struct Options {
    double budget_seconds = 0;  // 0: none
    bool repetitions = false;   // --benchmark_repetitions was given
    bool report_all = false;    // Google Benchmark's reporters also get the cases that the run folder has a row for
    std::function<void(std::vector<CaseResult>&)> before_writing = {};  // none: nothing is done to them
  };
  Sweep(CaseRunner& runner, RunFolder& folder, Options options);

  // Registers the cases that the run folder has no row for; with `report_all` the others too, which are not measured
  // again: what is reported does not depend on how often the sweep was interrupted.
  void register_cases(const std::vector<Case>& cases);
  // Runs all of them through Google Benchmark. Each reporter may be null.
  void run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file);

  std::size_t already_done() const { return already_done_; }
  std::size_t left_by_budget() const { return left_by_budget_; }
  // Of cases whose first repetition is the one in the run folder.
  int failed_repetitions() const { return failed_repetitions_; }
  // In which a result of ours was wrong.
  int wrong_comparisons() const { return wrong_comparisons_; }
  bool device_lost() const { return device_lost_; }

 private:
  void run_case(const Case& test_case, bool known, benchmark::State& state);
  bool may_measure(benchmark::State& state, bool again);
  void measure_problem(const Case& test_case);
  void report(const SweepRow& row, benchmark::State& state) const;
  void report_progress(const SweepRow& row);

  CaseRunner* runner_;
  RunFolder* folder_;
  Options options_;
  std::chrono::steady_clock::time_point start_;
  std::map<ProblemId, std::vector<Case>> cases_;  // all, also those that have a row
  std::size_t already_done_ = 0, registered_ = 0, total_ = 0, done_ = 0, left_by_budget_ = 0;
  int failed_repetitions_ = 0, wrong_comparisons_ = 0;
  bool device_lost_ = false;
  std::set<CaseId> called_;  // by Google Benchmark, once or more
};

}  // namespace noisefloor
