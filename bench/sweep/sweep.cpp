// The running half of a session: its cases as Google Benchmark's benchmarks, with progress and the time left.
#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/case_progress.h"
#include "bench/platform/build_info.h"
#include "bench/platform/console.h"
#include "bench/platform/processors.h"
#include "bench/sweep/session.h"
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

// How many there are for Google Benchmark: those without a row, with `report_all` the others too.
std::size_t SweepSession::register_cases(bool report_all) {
  std::size_t registered = 0;
  for (const Case& test_case : cases_) {
    of_problem_[test_case.id()].push_back(test_case);
    const bool known = folder_->rows().contains(test_case.id());
    total_ += !known;
    if (known && !report_all) continue;
    ++registered;
    // One call a case: how often it runs inside is the stopping rule's business. The time is given, not taken.
    benchmark::RegisterBenchmark(
        test_case.id().name().c_str(),
        [this, test_case, known](benchmark::State& state) { run_case(test_case, known, state); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  return registered;
}

// --benchmark_repetitions calls again: Google Benchmark gets every repetition, the run folder the first.
void SweepSession::run_case(const Case& test_case, bool known, benchmark::State& state) {
  const CaseId id = test_case.id();
  const bool again = !called_.insert(id).second;
  if (again && known) return state.SkipWithError("measured before: the run folder keeps one repetition");
  if (again) {
    if (!may_measure(state, again)) return;
    const CaseResult result = runner_->run(test_case);
    outcome_.failed += is_failure(result.row);
    outcome_.device_lost = result.device_lost;
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

bool SweepSession::may_measure(benchmark::State& state, bool again) {
  const double budget = plan_->request.budget;
  const bool spent = budget > 0 && seconds_since(start_) > budget;
  if (outcome_.device_lost) {
    state.SkipWithError("the device was lost before this case");
  } else if (spent) {
    outcome_.left_by_budget += !again;
    state.SkipWithError("the budget is spent");
  }
  return !outcome_.device_lost && !spent;
}

void SweepSession::measure_problem(const Case& test_case) {
  std::vector<Case> cases = of_problem_.at(test_case.id());
  if (test_case.entry->whole_networks)
    std::erase_if(cases,
                  [&](const Case& one) { return one.id() != test_case.id() && !folder_->rows().contains(one.id()); });
  ProblemResult result =
      runner_->run_problem(cases, folder_->rows(), [&](const CaseResult& timed) { report_progress(timed.row); });
  std::vector<std::pair<SweepRow, RowSamples>> rows;
  for (CaseResult& one : result.cases) rows.emplace_back(one.row, std::move(one.samples));
  folder_->append(rows);
  outcome_.device_lost = result.device_lost;
  outcome_.failed += result.wrong_comparisons;
}

void SweepSession::report(const SweepRow& row, benchmark::State& state) const {
  if (row.status != Outcome::ok) {
    const std::string reason = fmt::format("{}: {}", to_string(row.status), row.reason);
    state.SkipWithError(reason.c_str());
    return;
  }
  // Google Benchmark keeps no counters of those with an error.
  for (const auto& [name, value] : counters_of(row)) state.counters[name] = value;
  // The benchmark's time is the median, and its iterations are the samples behind it. Repetitions must agree in
  // iterations, and the stopping rule takes as many samples as it needs: each is then one measurement.
  const auto iterations =
      plan_->flags.repetitions ? 1 : std::max<benchmark::IterationCount>(1, row.samples.value_or(1));
  while (state.KeepRunningBatch(iterations))
    state.SetIterationTime(*row.time_cold_us * 1e-6 * static_cast<double>(iterations));
}

void SweepSession::report_progress(const SweepRow& row) {
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

const SweepOutcome& SweepSession::run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file) {
  RunnerOptions options;
  options.counters = parse_counter_mode(plan_->request.counters);
  options.worker = pytorch_.worker.get();
  options.neighbour = neighbour_.get();
  if (!pytorch_.why_not.empty()) options.why_no_worker = pytorch_.why_not;
  options.compare = !plan_->request.no_pairs;
  options.say = say_line;
  options.code = code_;
  if (earlier_) options.earlier = [this](const CaseId& id) { return earlier_->find(id); };
  if (is_host())
    options.raise_ceilings = [this] {
      say_line("a row is above the roof: the host's ceilings are measured once more");
      ceilings_ = raise_host_ceilings(ceilings_, build_info().commit, say_line);
      write_ceilings(folder_->path() / "ceilings.csv", ceilings_);
    };
  runner_.emplace(*platform_, &ceilings_, options);
  for (const auto& [id, row] : folder_->rows()) runner_->know(row);
  if (!runner_->counter_message().empty()) say_line("counters: " + runner_->counter_message());

  start_ = std::chrono::steady_clock::now();
  const std::size_t registered = register_cases(display != nullptr || file != nullptr);
  if (const std::size_t there = cases_.size() - total_; there > 0)
    say_line(fmt::format("{} cases are already in {}", there, folder_->path().string()));
  // The cases were chosen before: --benchmark_filter would match against more than names.
  SilentReporter silent;
  if (registered > 0)  // Google Benchmark would complain
    benchmark::RunSpecifiedBenchmarks(display != nullptr ? display : &silent, file, ".");
  runner_.reset();
  pytorch_.worker.reset();
  neighbour_.reset();  // before this program may start again
  if (is_host())
    if (const auto load = load_of_others()) folder_->add_facts({{"load_at_end", *load}});
  return outcome_;
}

}  // namespace noisefloor
