// A sweep of one device: opened, run into its folder, and then to be published.
//
// Google Benchmark runs its cases. The first benchmark of a problem measures all of its cases, whose rows are then
// written together; the others report theirs. A whole network, which takes minutes, is measured and written row by row.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/ceilings/ceilings.h"
#include "bench/measure/case_runner.h"
#include "bench/platform/nvml.h"
#include "bench/platform/platform.h"
#include "bench/sweep/plan.h"
#include "reports/run/run_files.h"
#include "reports/run/run_folder.h"

namespace noisefloor {

// What env.json of a run folder says of the device, its machine and the build. `monitor`: NVML's, of that device.
// Libraries and load are those of this moment.
nlohmann::ordered_json environment_facts(const PlatformDescription& description, const GpuMonitor& monitor);
// How a GPU is set up; what it does not report is left out.
nlohmann::ordered_json gpu_facts(const GpuDescription& gpu);

// The run whose rows a sweep keeps where they are still true (--reuse).
class EarlierRun {
 public:
  // `facts`: of this sweep, as for env.json. Throws InvalidInput naming what is wrong: no run, of a newer schema, or of
  // another device, driver or power limit.
  EarlierRun(const fs::path& folder, const nlohmann::ordered_json& facts);
  // One row in twenty is chosen, whose cold and warm times are taken anew though it could be kept: by `seed`, which a
  // resumed sweep has, else by the sweep's folder and the run's time. Returns the seed.
  std::string choose_checks(const fs::path& out, const std::string& seed);

  const EarlierRow* find(const CaseId& id) const;  // what may be kept: ok, with a signature; else null

  // What the sweep made of it: how many rows it kept, and those of the same signature that it timed as checks, as
  // they were and as they are.
  struct Result {
    std::size_t kept = 0;
    RunFiles before, now;
  };
  Result result(const fs::path& out) const;

 private:
  bool is_check(const CaseId& id) const;

  std::string seed_;
  RunFiles run_;
  std::map<CaseId, EarlierRow> rows_;
};

struct SweepOutcome {
  bool device_lost = false;  // this process can go on with nothing
  std::size_t left_by_budget = 0;
  int failed = 0;  // repetitions (but for the row's) and comparisons in which a result of ours was wrong
};

class SweepSession {
 public:
  // Which cases there are, and who measures them. Throws InvalidInput. Plan and platform must outlive it, and `code`,
  // which may be null: rows of kernels then have no signature.
  SweepSession(const SweepPlan& plan, Platform& platform, std::unique_ptr<Worker> neighbour, CodeWatch* code);
  const std::vector<Case>& cases() const { return cases_; }

  // Opens the run folder, and says in it what the sweep is of. Throws what keeps it from being added to.
  void open();
  RunFolder& folder() { return *folder_; }
  const EarlierRun* earlier() const { return earlier_ ? &*earlier_ : nullptr; }  // null without --reuse
  // Adds the rows that the folder has not. Each reporter may be null; they get the rows that it has, too, so that what
  // is reported does not depend on how often the sweep was interrupted.
  const SweepOutcome& run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file);

 private:
  bool is_host() const { return platform_->description().is_host; }
  std::size_t register_cases(bool report_all);
  void run_case(const Case& test_case, bool known, benchmark::State& state);
  bool may_measure(benchmark::State& state, bool again);
  void measure_problem(const Case& test_case);
  void report(const SweepRow& row, benchmark::State& state) const;
  void report_progress(const SweepRow& row);

  const SweepPlan* plan_;
  Platform* platform_;
  std::unique_ptr<Worker> neighbour_;
  GpuMonitor monitor_;
  PluginFiles plugins_;
  std::vector<Case> cases_;
  PyTorchSide pytorch_;
  std::optional<ShardRecord> shard_;
  std::optional<RunFolder> folder_;
  std::optional<EarlierRun> earlier_;
  CodeWatch* code_;
  Ceilings ceilings_;

  std::optional<CaseRunner> runner_;
  std::chrono::steady_clock::time_point start_;
  std::map<ProblemId, std::vector<Case>> of_problem_;  // all, also those that have a row
  std::set<CaseId> called_;                            // by Google Benchmark, once or more
  std::size_t total_ = 0, done_ = 0;                   // of those without a row
  SweepOutcome outcome_;
};

}  // namespace noisefloor
