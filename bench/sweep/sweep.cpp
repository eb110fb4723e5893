#include "bench/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/case_progress.h"
#include "bench/measure/duel.h"
#include "reports/run/columns.h"

namespace noisefloor {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void write_duel(const Ratio& cold, const Ratio& warm, const std::string& rival, SweepRow& row) {
  row.rival = rival;
  row.duel_cold = cold.value;
  row.duel_cold_low = cold.low;
  row.duel_cold_high = cold.high;
  row.duel_warm = warm.value;
  row.duel_warm_low = warm.low;
  row.duel_warm_high = warm.high;
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
    const CaseId id = test_case.id();
    cases_[id].push_back(test_case);
    const bool known = folder_->rows().contains(id);
    ++(known ? already_done_ : total_);
    if (!known) ++left_[id];
    if (known && !options_.report_all) continue;
    ++registered_;
    // One call a case: how often it runs inside is the stopping rule's business. The time is given, not taken.
    benchmark::RegisterBenchmark(id.name().c_str(),
                                 [this, test_case, id, known](benchmark::State& state) {
                                   if (known)
                                     report_known(id, state);
                                   else
                                     run_case(test_case, state);
                                 })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

void Sweep::report_known(const CaseId& id, benchmark::State& state) {
  if (!reported_.insert(id).second) {
    state.SkipWithError("measured before: the run folder keeps one repetition");
    return;
  }
  const SweepRow& row = folder_->rows().at(id);
  report(row, static_cast<std::size_t>(row.samples.value_or(1)), state);
}

std::chrono::steady_clock::time_point Sweep::end_of_budget() const {
  return start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                      std::chrono::duration<double>(options_.budget_seconds));
}

void Sweep::leave(benchmark::State& state) {
  ++left_by_budget_;
  state.SkipWithError("the budget is spent");
}

void Sweep::run_case(const Case& test_case, benchmark::State& state) {
  if (device_lost_) {
    state.SkipWithError("the device was lost before this case");
    return;
  }
  if (options_.budget_seconds > 0 && std::chrono::steady_clock::now() > end_of_budget()) {
    leave(state);
    return;
  }
  if (!runner_->settle_counters(&test_case)) {
    device_lost_ = true;
    state.SkipWithError("the device was lost when counters of the cases before it were taken");
    return;
  }
  // Not the first one's, so that sweeps which are resumed come to an end.
  if (options_.budget_seconds > 0 && done_ > 0) runner_->search_until(end_of_budget());
  const CaseResult result = runner_->run(test_case);
  if (result.unfinished) {
    device_lost_ = result.device_lost;
    leave(state);
    return;
  }
  // --benchmark_repetitions calls again: Google Benchmark gets every repetition, the run folder the first.
  if (!folder_->rows().contains(result.row)) {
    folder_->append(result.row, result.samples);
    ++done_;
    --left_[result.row];
  } else if (is_failure(result.row)) {
    ++failed_repetitions_;
  }
  device_lost_ = result.device_lost;
  report_progress(result.row);
  duel(result.row);
  report(result.row, result.samples.cold_us.size(), state);
}

void Sweep::report(const SweepRow& row, std::size_t samples, benchmark::State& state) const {
  if (row.status != Outcome::ok) {
    const std::string reason = fmt::format("{}: {}", to_string(row.status), row.reason);
    state.SkipWithError(reason.c_str());
    return;
  }
  // Google Benchmark keeps no counters of those with an error.
  for (const auto& [name, value] : counters_of(row)) state.counters[name] = value;
  // The benchmark's time is the median, and its iterations are the samples behind it. Repetitions must agree in
  // iterations, and the stopping rule takes as many samples as it needs: each is then one measurement.
  const auto iterations = options_.repetitions
                              ? 1
                              : std::max<benchmark::IterationCount>(1, static_cast<benchmark::IterationCount>(samples));
  while (state.KeepRunningBatch(iterations))
    state.SetIterationTime(*row.time_cold_us * 1e-6 * static_cast<double>(iterations));
}

void Sweep::duel(const ProblemId& problem) {
  if (device_lost_ || left_[problem] > 0) return;
  device_lost_ = !runner_->settle_counters();  // one that fails when it is counted fights no duel
  if (!options_.duels || device_lost_) return;
  for (const Pairing& pairing : pairings(cases_[problem], folder_->rows()))
    if (!device_lost_) duel(problem, pairing);
}

void Sweep::duel(const ProblemId& problem, const Pairing& pairing) {
  const std::string who = fmt::format("{}: {} against {}", problem.name(), pairing.ours->implementation->name,
                                      pairing.theirs->implementation->name);
  try {
    const DuelResult result = runner_->duel(*pairing.ours, *pairing.theirs);
    if (!result.wrong.empty()) {  // of rows that were right when they were alone; of ours the sweep's exit code says it
      failed_duels_ += result.ours_wrong;
      throw std::runtime_error(result.wrong);
    }
    SweepRow own = folder_->rows().at(pairing.ours->id()), baseline = folder_->rows().at(pairing.theirs->id());
    if (pairing.own_row) write_duel(result.cold, result.warm, baseline.variant, own);
    if (pairing.their_row) write_duel(result.cold.inverse(), result.warm.inverse(), own.variant, baseline);
    folder_->amend({own, baseline});
    fmt::print(stderr, "{}: cold {}, warm {}, {} rounds\n", who, text_of(result.cold), text_of(result.warm),
               result.rounds);
  } catch (const DeviceError& error) {
    fmt::print(stderr, "{}: {}\n", who, error.what());
    device_lost_ = error.lost();
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "{}: no duel: {}\n", who, error.what());
  }
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

void Sweep::run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file) {
  if (registered_ == 0) return;  // Google Benchmark would complain
  const std::string everything =
      ".";  // the cases were chosen before; --benchmark_filter would match against more than names
  SilentReporter silent;
  benchmark::RunSpecifiedBenchmarks(display != nullptr ? display : &silent, file, everything);
  if (!device_lost_) device_lost_ = !runner_->settle_counters();
}

}  // namespace noisefloor
