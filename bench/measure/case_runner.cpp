#include "bench/measure/case_runner.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/measure/bound_case.h"
#include "bench/measure/timing_loop.h"
#include "bench/measure/worker.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

EdgeLatency::Turn turn_of(Worker* neighbour) {
  if (neighbour == nullptr) return nullptr;
  return [neighbour] { (void)neighbour->ask({{"ask", "touch"}}, neighbour->options().start_seconds); };
}

bool is_verified(const SweepRow& row, const std::string& verification) {
  return !verification.empty() && row.verification == verification;
}

}  // namespace

CaseRunner::CaseRunner(Platform& platform, const Ceilings* ceilings, RunnerOptions options)
    : platform_(&platform),
      ceilings_(ceilings),
      options_(options),
      progress_(options.say, options.progress_clock),
      counters_(platform, options.counters),
      signatures_(platform, options.code) {
  known_.earlier = options_.earlier;
  known_.code = options_.code;
  if (options_.slots == 0) options_.slots = options_.warm_only ? 1 : usual_slots(platform);
  if (platform.description().is_host || options_.warm_only) return;
  (void)platform.sm_clock_mhz();  // what they need is made now, not between timed launches
  (void)platform.clock_event_reasons();
  edges_ = std::make_unique<EdgeLatency>([this](int samples) { return platform_->time_edges(samples); },
                                         turn_of(options_.neighbour), options_.say);
}

CaseRunner::~CaseRunner() = default;

CaseResult CaseRunner::run(const Case& test_case, std::optional<double> to_beat_us) {
  CaseResult result = take_times(test_case, to_beat_us);
  CaseCounters::Pass pass;
  count(test_case, result, pass);
  if (problem_) problem_->bound.clear();
  return result;
}

CaseResult CaseRunner::take_times(const Case& test_case, std::optional<double> to_beat_us) {
  CaseResult result;
  {
    const Spending spending(result);
    result = measure(test_case, to_beat_us);
    if (result.row.status == Outcome::out_of_memory && make_room(test_case)) result = measure(test_case, to_beat_us);
  }
  known_.add(result.row);
  return result;
}

CaseResult CaseRunner::measure(const Case& test_case, std::optional<double> to_beat_us) {
  const PlatformDescription& description = platform_->description();
  if (auto row = refused(test_case, description, platform_->arch_text())) return {*row};
  if (ceilings_ != nullptr)
    if (auto row = too_long(test_case, *ceilings_, description, platform_->arch_text())) return {*row};
  CaseResult result{blank_row(test_case, description, platform_->arch_text())};
  result.row.counter_status = counters_.status();
  attempt(test_case, result, [&] {
    if (!progress_.silent())
      progress_.begin(test_case.id().name(), ceilings_ != nullptr ? seconds_by_roof(test_case, *ceilings_) : 0);
    if (test_case.implementation->worker)
      measure_of_plugin(test_case, result);
    else if (test_case.implementation->in_worker)
      measure_in_worker(test_case, result);
    else
      measure_here(test_case, result, to_beat_us);
  });
  return result;
}

// What the step throws becomes the row's status.
void CaseRunner::attempt(const Case& test_case, CaseResult& result, const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception&) {
    const Failure failure = current_failure();
    result.row.status = failure.outcome;
    result.row.reason = failure.reason;
    result.device_lost = failure.lost;
  }
  if (result.row.status != Outcome::ok)
    clear_times(result);
  else if (test_case.weights == 0)
    set_phase(result.row.phases, "weights", options_.phases);  // nothing to take
  if (result.row.status != Outcome::cuda_error) return;
  try {
    platform_->synchronize();
  } catch (const DeviceError&) {
    result.device_lost = true;  // an error that stays after it was reported is there to stay
  }
  if (!test_case.implementation->elsewhere()) problem_.reset();  // it may have written anywhere
}

// The room that it needs may be what others keep. A worker's tensors also get that of ours.
bool CaseRunner::make_room(const Case& test_case) {
  if (!problem_) return false;
  if (test_case.implementation->elsewhere()) {
    problem_.reset();
    return true;
  }
  if (problem_->bound.empty()) return false;
  problem_->bound.clear();
  return true;
}

MeasuredProblem& CaseRunner::require_problem(const Case& test_case) {
  if (problem_ && problem_->id == ProblemId(test_case.id())) return *problem_;
  problem_.reset();  // before another takes its room
  problem_ = std::make_unique<MeasuredProblem>(*platform_, test_case, options_);
  return *problem_;
}

// Made ready anew where it is not kept.
std::shared_ptr<BoundCase> CaseRunner::require_bound(const Case& test_case) {
  MeasuredProblem& problem = require_problem(test_case);
  if (const auto kept = problem.bound.find(test_case.implementation->name); kept != problem.bound.end())
    return kept->second;
  problem.fixture.move_to(0);
  problem.fixture.use_inputs(0);
  return std::make_shared<BoundCase>(problem.fixture, *test_case.implementation, &problem.verifier, &known_);
}

const EarlierRow* CaseRunner::earlier_of(const Case& test_case) const {
  const EarlierRow* const found = options_.earlier ? options_.earlier(test_case.id()) : nullptr;
  return found != nullptr && found->row.prepare_us && options_.prepare_each ? nullptr : found;  // its time is without
}

bool CaseRunner::take_over(const EarlierRow* earlier, CaseResult& result) {
  const std::string signature = result.row.signature;
  if (earlier == nullptr || signature.empty() || signature != earlier->row.signature) return false;
  keep_row(*earlier, result);
  return true;
}

// A row without one is right, and measured anew by the next sweep.
void CaseRunner::sign(const Case& test_case, BoundCase* bound, CaseResult& result) const {
  if (options_.warm_only && !options_.earlier) return;
  try {
    if (const auto known = signatures_.without_launch(test_case, options_.worker))
      result.row.signature = *known;
    else if (bound != nullptr && !bound->of_plugin() && options_.code != nullptr)
      result.row.signature = signatures_.of_launch(*bound);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::runtime_error& error) {
    add_note(fmt::format("no signature: {}", error.what()), result);
  }
}

void CaseRunner::measure_here(const Case& test_case, CaseResult& result, std::optional<double> to_beat_us) {
  const EarlierRow* const earlier = earlier_of(test_case);
  const std::string verification = signatures_.of_verification(test_case);
  sign(test_case, nullptr, result);
  if (take_over(earlier, result) && is_verified(result.row, verification) &&
      phases_to_take(test_case, false, result).empty())
    return place(test_case, result.row);
  progress_.enter("preparing");
  require_problem(test_case).bound.erase(test_case.implementation->name);  // of an earlier time
  const std::shared_ptr<BoundCase> made = require_bound(test_case);
  auto& [id, fixture, verifier, kept] = *problem_;
  SweepRow& row = result.row;
  BoundCase& bound = *made;
  if (options_.prepare_each) bound.prepare_each_launch();
  if (earlier != nullptr && row.signature.empty()) {  // its kernels are loaded by a launch
    throw_if_failed(bound.launch()());
    platform_->synchronize();
    sign(test_case, &bound, result);
    (void)take_over(earlier, result);
  }
  if (!result.kept || !is_verified(row, verification)) {
    progress_.enter("verifying");
    const Verdict verdict = verify(bound, result);
    if (!verdict.correct()) return;
    if (!result.kept) row.reason = bound.many_kernels() ? bound.description() : verdict.note;
  }
  if (!result.kept) {
    row.workspace_bytes = static_cast<long>(bound.working_bytes());
    if (bound.many_kernels()) row.peak_memory_bytes = row.workspace_bytes;
    if (bound.prepares()) row.prepare_us = bound.prepare_us();
    result.note = bound.description();
    if (!bound.many_kernels()) row.algorithm = bound.description();
    if (row.signature.empty() && !options_.warm_only) sign(test_case, &bound, result);
  }
  row.verification = verification;
  BoundContender timed(
      made, verifier,
      {[this] { progress_.between(); }, edges_.get(), test_case.weights.value_or(0), options_.warm_only});
  if (bound.of_plugin() && !take_replay(timed, result)) return;
  if (options_.on_verified) options_.on_verified(test_case, fixture);
  if (options_.warm_only && has_phase(row.phases, "warm", options_.phases)) return;
  if (options_.warm_only) return time_warm_only(timed, result, to_beat_us);
  if (!result.kept) {
    read_resources(*platform_, bound, result);
    for (const auto& [launched, count] : bound.launches()) {
      result.samples.launches.push_back(launched.name());
      result.samples.launch_counts.push_back(count);
    }
  }
  const bool serial = bound.overlaps() && !platform_->description().is_host;
  if (timed.slots() > 1) row.buffer_slots = static_cast<long>(timed.slots());
  const bool complete = result.kept && phases_to_take(test_case, serial, result).empty();
  if (!complete && !time(test_case, timed, serial, earlier, result)) return;
  if (!result.kept && !platform_->description().is_host)
    count_edges(*platform_, bound.launch(/*overlapping=*/!bound.overlaps()), result);
  place(test_case, row);
  kept.insert_or_assign(row.variant, made);
}

// At two places: what keeps to the tensors of its first launch would be right wherever a phase ends in the first.
Verdict CaseRunner::verify(BoundCase& bound, CaseResult& result) {
  auto& [id, fixture, verifier, kept] = *problem_;
  Verdict verdict = verifier.verify(bound);
  if (!take_verdict(verdict, result) || fixture.slots() == 1 || bound.of_plugin()) return verdict;
  fixture.move_to(1);
  if (const Verdict elsewhere = verifier.verify(bound); !take_verdict(elsewhere, result)) verdict = elsewhere;
  fixture.move_to(0);
  return verdict;
}

// The worker's columns where this program has nothing to say: it knows the device, the problem and the ceilings.
void CaseRunner::measure_of_plugin(const Case& test_case, CaseResult& result) {
  SweepRow& row = result.row;
  row.counter_status.clear();
  platform_->synchronize();  // nothing of ours runs beside it
  measure_whole(*test_case.implementation->worker, test_case, counters_.mode(), options_.seed, result);
  if (row.status == Outcome::ok) place(test_case, row);
}

// Counters are of this process.
void CaseRunner::measure_in_worker(const Case& test_case, CaseResult& result) {
  SweepRow& row = result.row;
  row.counter_status = kNotCollected;
  if (options_.worker == nullptr) throw LibraryMissing(options_.why_no_worker);
  const EarlierRow* const earlier = earlier_of(test_case);
  const std::string verification = signatures_.of_verification(test_case);
  if (earlier != nullptr) sign(test_case, nullptr, result);
  const bool kept = take_over(earlier, result), complete = kept && phases_to_take(test_case, false, result).empty();
  if (complete && is_verified(row, verification)) return place(test_case, row);
  progress_.enter("preparing");
  WorkerCase in_worker(*options_.worker, test_case, platform_);
  row.algorithm = in_worker.algorithm();
  row.lossy = in_worker.lossy();
  if (!take_verdict(in_worker.verdict(), result)) return;
  row.verification = verification;
  if (complete) return place(test_case, row);
  row.reason = in_worker.note();
  row.peak_memory_bytes = in_worker.peak_memory_bytes();
  if (const std::string& judged = in_worker.verdict().note; !judged.empty())
    row.reason += (row.reason.empty() ? "" : "; ") + judged;
  platform_->synchronize();  // nothing of ours runs beside it
  if (!time(test_case, in_worker, /*serial=*/false, earlier, result)) return;
  if (row.signature.empty()) sign(test_case, nullptr, result);
  place(test_case, row);
}

// What is asked of a plugin beside its results. What it set aside of L2 is everybody's again.
bool CaseRunner::take_replay(Contender& timed, CaseResult& result) {
  if (const Verdict verdict = timed.replay(); !verdict.correct()) {
    result.row.status = Outcome::incorrect;
    result.row.reason = verdict.reason;
    return false;
  }
  if (const std::size_t bytes = platform_->take_back_l2(); bytes > 0)
    result.row.reason += fmt::format("{}took back {} bytes of L2 that it had set aside for persisting accesses",
                                     result.row.reason.empty() ? "" : "; ", bytes);
  return true;
}

void CaseRunner::say(const std::string& message) const {
  if (options_.say) options_.say(message);
}

void CaseRunner::place(const Case& test_case, SweepRow& row) {
  if (ceilings_ == nullptr) return;
  constexpr double kBeaten = 102;
  const SweepRow before = row;
  const auto place = [&] { place_under_roof(test_case, *ceilings_, platform_->description().info.l2_bytes, row); };
  place();
  const bool beaten = row.status == Outcome::implausible || *row.pct_of_roof > kBeaten;
  if (!beaten || raised_ || !options_.raise_ceilings) return;
  raised_ = true;
  options_.raise_ceilings();
  row = before;
  place();
}

}  // namespace noisefloor
