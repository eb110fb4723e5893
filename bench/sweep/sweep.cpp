#include "bench/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/case_progress.h"
#include "reports/run/columns.h"

namespace noisefloor {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Google Benchmark wants a reporter; ours is the progress line of each case.
class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace

Sweep::Sweep(CaseRunner& runner, RunFolder& folder, Options options)
    : runner_(&runner), folder_(&folder), options_(options), start_(std::chrono::steady_clock::now()) {}

void Sweep::register_cases(const std::vector<Case>& cases) {
  for (const Case& test_case : cases) {
    cases_[test_case.id()].push_back(test_case);
    const bool known = folder_->rows().contains(test_case.id());
    ++(known ? already_done_ : total_);
    if (known && !options_.report_all) continue;
    ++registered_;
    // One call a case: how often it runs inside is the stopping rule's business. The time is given, not taken.
    benchmark::RegisterBenchmark(
        test_case.id().name().c_str(),
        [this, test_case, known](benchmark::State& state) { run_case(test_case, known, state); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

// --benchmark_repetitions calls again: Google Benchmark gets every repetition, the run folder the first.
void Sweep::run_case(const Case& test_case, bool known, benchmark::State& state) {
  const CaseId id = test_case.id();
  const bool again = !called_.insert(id).second;
  if (again && known) return state.SkipWithError("measured before: the run folder keeps one repetition");
  if (again) {
    if (!may_measure(state, again)) return;
    const CaseResult result = runner_->run(test_case);
    failed_repetitions_ += is_failure(result.row);
    device_lost_ = result.device_lost;
    return report(result.row, state);
  }
  const auto& rows = folder_->rows();
  if (!rows.contains(id)) {
    if (!may_measure(state, again)) return;
    measure_problem(test_case);
  }
  if (const auto row = rows.find(id); row != rows.end()) return report(row->second, state);
  state.SkipWithError("another case of its problem left the device unusable");
}

bool Sweep::may_measure(benchmark::State& state, bool again) {
  const bool spent = options_.budget_seconds > 0 && seconds_since(start_) > options_.budget_seconds;
  if (device_lost_) {
    state.SkipWithError("the device was lost before this case");
  } else if (spent) {
    left_by_budget_ += !again;
    state.SkipWithError("the budget is spent");
  }
  return !device_lost_ && !spent;
}

void Sweep::measure_problem(const Case& test_case) {
  std::vector<Case> cases = cases_.at(test_case.id());
  if (test_case.entry->whole_networks)
    std::erase_if(cases,
                  [&](const Case& one) { return one.id() != test_case.id() && !folder_->rows().contains(one.id()); });
  ProblemResult result =
      runner_->run_problem(cases, folder_->rows(), [&](const CaseResult& timed) { report_progress(timed.row); });
  if (options_.before_writing) options_.before_writing(result.cases);
  std::vector<std::pair<SweepRow, RowSamples>> rows;
  for (CaseResult& one : result.cases) rows.emplace_back(one.row, std::move(one.samples));
  folder_->append(rows);
  device_lost_ = result.device_lost;
  wrong_comparisons_ += result.wrong_comparisons;
}

void Sweep::report(const SweepRow& row, benchmark::State& state) const {
  if (row.status != Outcome::ok) {
    const std::string reason = fmt::format("{}: {}", to_string(row.status), row.reason);
    state.SkipWithError(reason.c_str());
    return;
  }
  // Google Benchmark keeps no counters of those with an error.
  for (const auto& [name, value] : counters_of(row)) state.counters[name] = value;
  // The benchmark's time is the median, and its iterations are the samples behind it. Repetitions must agree in
  // iterations, and the stopping rule takes as many samples as it needs: each is then one measurement.
  const auto iterations = options_.repetitions ? 1 : std::max<benchmark::IterationCount>(1, row.samples.value_or(1));
  while (state.KeepRunningBatch(iterations))
    state.SetIterationTime(*row.time_cold_us * 1e-6 * static_cast<double>(iterations));
}

void Sweep::report_progress(const SweepRow& row) {
  ++done_;
  const double elapsed = seconds_since(start_);
  const double left = elapsed / static_cast<double>(done_) * static_cast<double>(total_ - std::min(total_, done_));
  std::string outcome;
  if (row.status == Outcome::ok)
    outcome = fmt::format("{:>10.2f} us {:>6}", *row.time_cold_us,
                          row.pct_of_roof ? fmt::format("{:.1f} %", *row.pct_of_roof) : "");
  else
    outcome = fmt::format("{}: {}", to_string(row.status), row.reason);
  fmt::print(stderr, "[{:>{}}/{}] {} {} {} {:<22} {}  ({} left)\n", done_, std::to_string(total_).size(), total_,
             row.op, row.problem, row.dtype, row.variant, outcome, duration_text(left));
}

void Sweep::run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file) {
  if (registered_ == 0) return;  // Google Benchmark would complain
  const std::string everything =
      ".";  // the cases were chosen before; --benchmark_filter would match against more than names
  SilentReporter silent;
  benchmark::RunSpecifiedBenchmarks(display != nullptr ? display : &silent, file, everything);
}

}  // namespace noisefloor
