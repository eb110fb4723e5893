#include "bench/measure/case_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/counters/nvtx.h"
#include "bench/measure/bound_case.h"
#include "bench/measure/case_result.h"
#include "bench/measure/timing_loop.h"
#include "bench/measure/worker.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

EdgeLatency::Turn turn_of(Worker* neighbour) {
  if (neighbour == nullptr) return nullptr;
  return [neighbour] { (void)neighbour->ask({{"ask", "touch"}}, neighbour->options().start_seconds); };
}

}  // namespace

CaseRunner::CaseRunner(Platform& platform, const Ceilings* ceilings, RunnerOptions options)
    : platform_(&platform),
      ceilings_(ceilings),
      options_(options),
      progress_(options.say, options.progress_clock),
      counters_(platform, options.counters) {
  if (options_.slots == 0) options_.slots = options_.warm_only ? 1 : usual_slots(platform);
  if (platform.description().is_host || options_.warm_only) return;
  clocks_ = std::make_unique<DeviceClocks>(platform.description().index);
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
  const auto begin = std::chrono::steady_clock::now();
  CaseResult result = measure(test_case, to_beat_us);
  if (result.row.status == Outcome::out_of_memory && make_room(test_case)) result = measure(test_case, to_beat_us);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  result.row.spent_s = std::round(100 * spent.count()) / 100;
  known_.add(result.row);
  return result;
}

CaseResult CaseRunner::measure(const Case& test_case, std::optional<double> to_beat_us) {
  const PlatformDescription& description = platform_->description();
  if (auto row = refused(test_case, description, platform_->arch_text())) return {*row};
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
  if (result.row.status != Outcome::ok) clear_times(result);
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

void CaseRunner::measure_here(const Case& test_case, CaseResult& result, std::optional<double> to_beat_us) {
  progress_.enter("preparing");
  require_problem(test_case).bound.erase(test_case.implementation->name);  // of an earlier time
  const std::shared_ptr<BoundCase> made = require_bound(test_case);
  auto& [id, fixture, verifier, kept] = *problem_;
  SweepRow& row = result.row;
  BoundCase& bound = *made;
  row.workspace_bytes = static_cast<long>(bound.working_bytes());
  if (bound.prepares()) row.prepare_us = bound.prepare_us();
  result.note = bound.description();
  if (!bound.many_kernels()) row.algorithm = bound.description();

  progress_.enter("verifying");
  const Verdict verdict = verifier.verify(bound);
  if (!take_verdict(verdict, result)) return;
  // What keeps to the tensors of its first launch would be right wherever a phase ends in the first place.
  if (fixture.slots() > 1 && !bound.of_plugin()) {
    fixture.move_to(1);
    if (!take_verdict(verifier.verify(bound), result)) return;
    fixture.move_to(0);
  }
  row.reason = bound.many_kernels() ? bound.description() : verdict.note;
  if (bound.of_plugin() && !take_replay(bound, result)) return;
  if (options_.on_verified) options_.on_verified(test_case, fixture);
  if (options_.warm_only) return time_warm_only(bound, result, to_beat_us);
  read_resources(*platform_, bound, result);
  time(test_case, bound, result);
  if (row.status != Outcome::ok) return;
  place(test_case, row);
  kept.insert_or_assign(row.variant, made);
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
  progress_.enter("preparing");
  WorkerCase in_worker(*options_.worker, test_case);
  progress_.enter("timing");
  if (!take_verdict(in_worker.verdict(), result)) return;
  row.reason = in_worker.note();
  if (const std::string& judged = in_worker.verdict().note; !judged.empty())
    row.reason += (row.reason.empty() ? "" : "; ") + judged;
  progress_.enter("cold and warm launches");
  platform_->synchronize();  // nothing of ours runs beside it
  WorkerTiming source(in_worker, *platform_, clocks_.get());
  TimingLoop loop(source, timing_options());
  in_worker.poison();
  loop.cold();
  if (!take_last_verdict("cold", in_worker.judge(), result)) return;
  in_worker.poison();
  loop.warm();
  if (!take_last_verdict("warm", in_worker.judge(), result)) return;
  take_samples(loop.timing(), result);
  if (row.status == Outcome::ok) place(test_case, row);
}

// A plan asks for an order, not for times to report: it waits for the cores no longer than it samples.
constexpr double kPlanRetrySeconds = 0.3;

TimingOptions CaseRunner::timing_options() const {
  return {.cold = options_.cold,
          .warm = options_.warm,
          .throttle_retry_seconds = options_.warm_only ? kPlanRetrySeconds : options_.throttle_retry_seconds,
          .host = platform_->description().is_host,
          .quick = options_.warm_only,
          .watch_others = options_.watch_others,
          .look_at_edges = !options_.warm_only};
}

// What is asked of a plugin beside its results. What it set aside of L2 is everybody's again.
bool CaseRunner::take_replay(BoundCase& bound, CaseResult& result) {
  if (const Verdict verdict = problem_->verifier.verify_replay(bound); !verdict.correct()) {
    result.row.status = Outcome::incorrect;
    result.row.reason = verdict.reason;
    return false;
  }
  if (const std::size_t bytes = platform_->take_back_l2(); bytes > 0)
    result.row.reason += fmt::format("{}took back {} bytes of L2 that it had set aside for persisting accesses",
                                     result.row.reason.empty() ? "" : "; ", bytes);
  return true;
}

// The first launch was verified before the timing. A variant that is right once and wrong later (a counter that is not
// reset, a race between launches, nothing inside a graph, a result that it kept from other inputs) shows in what the
// last launch of a phase left: its outputs were poisoned before, and the phase before it had other inputs.
bool CaseRunner::time_phase(const char* name, std::size_t inputs, BoundCase& bound, CaseResult& result,
                            const Phase& phase) {
  problem_->fixture.move_to(0);
  bound.use_inputs(inputs);
  problem_->verifier.expect(bound.name());
  progress_.enter(fmt::format("{} launches", name));
  phase();
  if (bound.of_plugin() && platform_->take_back_l2() > 0) {
    result.row.status = Outcome::incorrect;
    result.row.reason =
        fmt::format("its {} launches set L2 aside for persisting accesses: no time of theirs is cold", name);
    return false;
  }
  const auto& specs = problem_->fixture.specs();
  if (std::none_of(specs.begin(), specs.end(), [](const TensorSpec& spec) { return spec.role == Role::inout; }))
    return take_last_verdict(name, problem_->verifier.judge(bound), result);
  const auto damage = problem_->fixture.find_damage();  // many launches on one tensor leave nothing else that is known
  return take_last_verdict(name, {damage.value_or("")}, result);
}

void CaseRunner::time(const Case& test_case, BoundCase& bound, CaseResult& result) {
  const NvtxRange range(test_case.id().name());
  PlatformTiming source(
      *platform_, bound,
      {.clocks = clocks_.get(), .before_batch = [this] { progress_.between(); }, .edges = edges_.get()});
  TimingLoop loop(source, timing_options());
  if (!time_phase("cold", 0, bound, result, [&] { loop.cold(); })) return;
  if (loop.timing().others.in_the_way) return take_samples(loop.timing(), result);
  if (!time_phase("warm", 1, bound, result, [&] { loop.warm(); })) return;
  const bool overlaps = bound.overlaps() && !platform_->description().is_host;
  if (overlaps && !loop.timing().others.in_the_way &&
      !time_phase("serial warm", 0, bound, result, [&] { loop.warm_serial(); }))
    return;
  if (bound.of_plugin() && !take_replay(bound, result)) return;  // as before: it may have begun with it since
  take_samples(loop.timing(), result);
  if (source.slots() > 1) result.row.buffer_slots = static_cast<long>(source.slots());
  if (!platform_->description().is_host)
    count_edges(*platform_, bound.launch(/*overlapping=*/!bound.overlaps()), result);
}

void CaseRunner::say(const std::string& message) const {
  if (options_.say) options_.say(message);
}

void CaseRunner::time_warm_only(BoundCase& bound, CaseResult& result, std::optional<double> to_beat_us) {
  PlatformTiming source(*platform_, bound);
  TimingLoop loop(source, timing_options());
  const auto warm = [&] {
    const double once = loop.probe_warm();
    if (to_beat_us && once > 2 * *to_beat_us) {
      result.samples.warm_us = {once};
    } else {
      loop.warm();
      result.samples.warm_us = loop.timing().others.in_the_way ? std::vector{once} : loop.timing().warm_us;
    }
  };
  if (!time_phase("warm", 0, bound, result, warm)) return;
  result.row.time_warm_us = median(result.samples.warm_us);
  result.row.status = Outcome::ok;
}

void CaseRunner::place(const Case& test_case, SweepRow& row) const {
  if (ceilings_ != nullptr) place_under_roof(test_case, *ceilings_, platform_->description().info.l2_bytes, row);
}

}  // namespace noisefloor
