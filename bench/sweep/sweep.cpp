#include "bench/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/sweep/selection.h"

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

// Every benchmark that is ok has every counter, so that no consumer of the JSON meets one with fewer: NaN is "not
// measured". Google Benchmark keeps no counters of those with an error.
void set_counters(benchmark::State& state, const SweepRow& row) {
  const auto set = [&](const char* name, const auto& value) {
    state.counters[name] = value ? static_cast<double>(*value) : std::numeric_limits<double>::quiet_NaN();
  };
  set("time_cold_us", row.time_cold_us);
  set("time_cold_mad_us", row.time_cold_mad_us);
  set("time_warm_us", row.time_warm_us);
  set("gflops", row.gflops);
  set("gbps", row.gbps);
  set("flops", std::optional(row.flops));
  set("bytes", std::optional(row.bytes));
  set("ai", row.ai);
  set("attainable_gflops", row.attainable_gflops);
  set("pct_of_roof", row.pct_of_roof);
  set("dram_read_bytes", row.dram_read_bytes);
  set("dram_write_bytes", row.dram_write_bytes);
  set("l2_bytes", row.l2_bytes);
  set("occupancy_pct", row.occupancy_pct);
  set("occupancy_limit_pct", row.occupancy_limit_pct);
  set("tensor_pipe_pct", row.tensor_pipe_pct);
  set("registers", row.registers);
  set("smem_bytes", row.smem_bytes);
  set("spill_bytes", row.spill_bytes);
  set("workspace_bytes", row.workspace_bytes);
  set("prepare_us", row.prepare_us);
  set("sm_clock_mhz", row.sm_clock_mhz);
  set("max_rel_error", row.max_rel_error);
  set("tolerance", row.tolerance);
}

}  // namespace

std::string duration_text(double seconds) {
  const long whole = std::lround(seconds);
  return whole < 60 ? fmt::format("{}s", whole) : fmt::format("{}m{:02}s", whole / 60, whole % 60);
}

Sweep::Sweep(CaseRunner& runner, RunFolder& folder, Options options)
    : runner_(&runner), folder_(&folder), options_(options), start_(std::chrono::steady_clock::now()) {}

void Sweep::register_cases(const std::vector<Case>& cases) {
  for (const Case& test_case : cases) {
    if (folder_->rows().contains(test_case.id())) {
      ++already_done_;
      continue;
    }
    ++total_;
    // One call a case: how often it runs inside is the stopping rule's business. The time is given, not taken.
    benchmark::RegisterBenchmark(test_case.id().name().c_str(),
                                 [this, test_case](benchmark::State& state) { run_case(test_case, state); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

void Sweep::run_case(const Case& test_case, benchmark::State& state) {
  if (device_lost_) {
    state.SkipWithError("the device was lost before this case");
    return;
  }
  if (options_.budget_seconds > 0 && seconds_since(start_) > options_.budget_seconds) {
    ++left_by_budget_;
    state.SkipWithError("the budget is spent");
    return;
  }
  const CaseResult result = runner_->run(test_case);
  // --benchmark_repetitions calls again: Google Benchmark gets every repetition, the run folder the first.
  if (!folder_->rows().contains(result.row.case_id())) {
    folder_->append(result);
    ++done_;
  } else if (result.row.status == Outcome::incorrect || result.row.status == Outcome::cuda_error) {
    ++failed_repetitions_;
  }
  device_lost_ = result.device_lost;
  report_progress(result.row);
  if (result.row.status != Outcome::ok) {
    const std::string reason = fmt::format("{}: {}", to_string(result.row.status), result.row.reason);
    state.SkipWithError(reason.c_str());
    return;
  }
  set_counters(state, result.row);
  // The benchmark's time is the median, and its iterations are the samples behind it. Repetitions must agree in
  // iterations, and the stopping rule takes as many samples as it needs: each is then one measurement.
  const auto samples = options_.repetitions ? 1 : static_cast<benchmark::IterationCount>(result.cold_us.size());
  while (state.KeepRunningBatch(samples))
    state.SetIterationTime(*result.row.time_cold_us * 1e-6 * static_cast<double>(samples));
}

void Sweep::report_progress(const SweepRow& row) {
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

void Sweep::run(bool own_display) {
  if (total_ == 0) return;  // Google Benchmark would complain
  const std::string everything =
      ".";  // the cases were chosen before; --benchmark_filter would match against more than names
  SilentReporter silent;
  if (own_display)
    benchmark::RunSpecifiedBenchmarks(&silent, everything);
  else
    benchmark::RunSpecifiedBenchmarks(everything);
}

}  // namespace noisefloor
