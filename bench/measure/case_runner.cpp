#include "bench/measure/case_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/counters/nvtx.h"
#include "bench/measure/bound_case.h"
#include "bench/measure/case_row.h"
#include "bench/measure/failure.h"
#include "bench/measure/timed_launches.h"
#include "bench/measure/timing_loop.h"
#include "bench/measure/worker.h"
#include "reports/run/statistics.h"
#ifdef NOISEFLOOR_TEST_SLOWDOWN_PERCENT
#include "bench/measure/test_slowdown.h"
#endif

namespace noisefloor {
namespace {

ShortEdges::Turn turn_of(Worker* neighbour) {
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
#ifdef NOISEFLOOR_TEST_SLOWDOWN_PERCENT
  (void)slowdown_percent(NOISEFLOOR_TEST_SLOWDOWN_PERCENT);  // a wrong one ends the run here
#endif
  if (options_.places == 0) options_.places = options_.warm_only ? 1 : usual_places(platform);
  if (platform.description().is_host || options_.warm_only) return;
  clocks_ = std::make_unique<DeviceClocks>(platform.description().index);
  edges_ = std::make_unique<ShortEdges>([this](int samples) { return platform_->time_edges(samples); },
                                        turn_of(options_.neighbour));
}

CaseRunner::~CaseRunner() = default;

CaseResult CaseRunner::run(const Case& test_case, std::optional<double> to_beat_us) {
  const auto begin = std::chrono::steady_clock::now();
  CaseResult result = measure(test_case, to_beat_us);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  result.row.spent_s = std::round(100 * spent.count()) / 100;
  if (!result.unfinished) known_.add(result.row);
  uncounted_.finish(result.row);
  return result;
}

bool CaseRunner::settle_counters(const Case* next) {
  const bool goes_on = next != nullptr && ProblemId(next->id()) == fixture_of_ && !next->implementation->in_worker &&
                       !next->implementation->worker;
  if (uncounted_.empty() || goes_on) return true;
  CountingPass pass(counters_);
  const UncountedCases::CountOne by_cupti = [&](const Case& test_case, BoundCase& bound, SweepRow& row) {
    pass.count(*platform_, test_case, bound, row);
  };
  const auto [rows, lost] = uncounted_.count(*fixture_, options_.count_one ? options_.count_one : by_cupti);
  options_.on_counted(rows);
  return !lost;
}

CaseResult CaseRunner::measure(const Case& test_case, std::optional<double> to_beat_us) {
  const PlatformDescription& description = platform_->description();
  if (auto row = refused(test_case, description, platform_->arch_text())) return {*row};
  CaseResult result{blank_row(test_case, description, platform_->arch_text())};
  SweepRow& row = result.row;
  row.counter_status = counters_.status();
  try {
    if (!progress_.silent())
      progress_.begin(test_case.id().name(), ceilings_ != nullptr ? seconds_by_roof(test_case, *ceilings_) : 0);
    if (test_case.implementation->worker)
      measure_of_plugin(test_case, result);
    else if (test_case.implementation->in_worker)
      measure_in_worker(test_case, result);
    else
      measure_here(test_case, result, to_beat_us);
  } catch (const BudgetSpent&) {
    result.unfinished = true;
    return result;
  } catch (const std::exception&) {
    const Failure failure = current_failure();
    row.status = failure.outcome;
    row.reason = failure.reason;
    result.device_lost = failure.lost;
  }
  // What others that wait for counters hold may be the room that it needs.
  if (row.status == Outcome::out_of_memory && !uncounted_.empty()) {
    if (settle_counters()) return measure(test_case, to_beat_us);
    result.unfinished = result.device_lost = true;
    return result;
  }
  // A worker's tensors found no room: once more without ours beside them. A duel makes those anew.
  const Implementation& implementation = *test_case.implementation;
  if (row.status == Outcome::out_of_memory && (implementation.worker || implementation.in_worker) && fixture_) {
    drop_fixture();
    return measure(test_case, to_beat_us);
  }
  if (row.status != Outcome::ok) clear_times(result);
  if (row.status == Outcome::cuda_error) {
    try {
      platform_->synchronize();
      if (!settle_counters()) result.device_lost = true;
    } catch (const DeviceError&) {
      result.device_lost = true;  // an error that stays after it was reported is there to stay
    }
    fixture_of_ = {};
    uncounted_.clear();
    kept_.clear();
  }
  return result;
}

// What it holds is missed by others, so not where memory is short.
bool CaseRunner::may_wait_for_counters(const BoundCase& bound) const {
  const bool counted = options_.count_one || counters_.mode() != CounterMode::off;
  return options_.on_counted && counted && !bound.many_kernels() &&
         2 * platform_->free_bytes() >= platform_->description().memory_bytes;
}

void CaseRunner::require_fixture(const Case& test_case) {
  const ProblemId id = test_case.id();
  if (id == fixture_of_) return;
  if (!settle_counters()) throw DeviceError("the device was lost when the cases before were counted", true);
  drop_fixture();
  fixture_ = std::make_unique<Fixture>(*platform_, *test_case.entry, test_case.problem, test_case.dtype, options_.seed,
                                       options_.given, test_case.entry->whole_networks ? 1 : options_.places);
  verifier_ = std::make_unique<Verifier>(*fixture_, options_.verifier);
  fixture_of_ = id;
}

void CaseRunner::drop_fixture() {
  fixture_of_ = {};
  uncounted_.clear();
  kept_.clear();
  verifier_.reset();
  fixture_.reset();
}

void CaseRunner::measure_here(const Case& test_case, CaseResult& result, std::optional<double> to_beat_us) {
  require_fixture(test_case);
  fixture_->move_to(0);
  fixture_->use_inputs(0);
  SweepRow& row = result.row;
  progress_.enter("preparing");
  const auto made =
      std::make_shared<BoundCase>(*fixture_, *test_case.implementation, verifier_.get(), &known_, search_until_);
  BoundCase& bound = *made;
  row.workspace_bytes = static_cast<long>(bound.working_bytes());
  if (bound.prepares()) row.prepare_us = bound.prepare_us();
  result.note = bound.description();
  if (!bound.many_kernels()) row.algorithm = bound.description();

  progress_.enter("verifying");
  const Verdict verdict = verifier_->verify(bound);
  if (!take_verdict(verdict, result)) return;
  // What keeps to the tensors of its first launch would be right wherever a phase ends in the first place.
  if (fixture_->places() > 1 && !bound.of_plugin()) {
    fixture_->move_to(1);
    if (!take_verdict(verifier_->verify(bound), result)) return;
    fixture_->move_to(0);
  }
  row.reason = bound.many_kernels() ? bound.description() : verdict.note;
  if (bound.of_plugin() && !take_replay(bound, result)) return;
  if (options_.on_verified) options_.on_verified(test_case, *fixture_);
  if (!options_.warm_only) read_resources(*platform_, bound, result);
  if (options_.warm_only)
    time_warm_only(bound, result, to_beat_us);
  else
    time(test_case, bound, result);
  if (row.status == Outcome::ok && !options_.warm_only) {
    place(test_case, row);
    if (may_wait_for_counters(bound)) {
      row.counter_status = kCutOff;
      uncounted_.add(test_case, made);
    } else {
      progress_.enter("counters");
      CountingPass(counters_).count(*platform_, test_case, bound, row);
    }
  }
  if (!options_.warm_only) kept_.keep(*test_case.implementation, result, made);
}

DuelResult CaseRunner::duel(const Case& ours, const Case& theirs) {
  require_fixture(ours);
  const auto settle_edges = [this] {
    if (edges_) edges_->settle(kEdgeSamples);
    say_of_edges();
  };
  return meet({*fixture_, *verifier_, kept_, known_, options_.worker, options_.why_no_worker, settle_edges}, ours,
              theirs);
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
  const Verdict verdict = verifier_->verify_replay(bound);
  if (!verdict.correct) {
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
  fixture_->move_to(0);
  bound.use_inputs(inputs);
  verifier_->expect(bound.name());
  progress_.enter(fmt::format("{} launches", name));
  phase();
  say_of_edges();
  if (bound.of_plugin() && platform_->take_back_l2() > 0) {
    result.row.status = Outcome::incorrect;
    result.row.reason =
        fmt::format("its {} launches set L2 aside for persisting accesses: no time of theirs is cold", name);
    return false;
  }
  const auto& specs = fixture_->specs();
  if (std::none_of(specs.begin(), specs.end(), [](const TensorSpec& spec) { return spec.role == Role::inout; }))
    return take_last_verdict(name, verifier_->judge(bound), result);
  const auto damage = fixture_->find_damage();  // many launches on one tensor leave nothing else that is known
  Verdict verdict;
  verdict.correct = !damage;
  verdict.reason = damage.value_or("");
  return take_last_verdict(name, verdict, result);
}

void CaseRunner::time(const Case& test_case, BoundCase& bound, CaseResult& result) {
  TimedLaunches timed(*platform_, bound);
  const NvtxRange range(test_case.id().name());
  PlatformTiming source(*platform_, timed.launches, timed.resident,
                        {.clocks = clocks_.get(),
                         .before_batch = [this] { progress_.between(); },
                         .edges = edges_.get(),
                         .places = timed.places,
                         .move = [&](std::size_t place) { timed.move_to(place); }});
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
  if (timed.places > 1) result.row.places = static_cast<long>(timed.places);
  if (!platform_->description().is_host)
    count_edges(*platform_, bound.overlaps() ? timed.launches.ordinary : timed.launches.pipeline, result);
}

void CaseRunner::say_of_edges() {
  if (!edges_) return;
  const std::string message = edges_->take_message();
  if (message.empty() || message == said_of_edges_) return;
  said_of_edges_ = message;
  if (options_.say) options_.say(message);
}

void CaseRunner::time_warm_only(BoundCase& bound, CaseResult& result, std::optional<double> to_beat_us) {
  const Launch launch = bound.launch(/*overlapping=*/true);
  const auto resident = bound.resident();
  PlatformTiming source(*platform_, {launch, launch, launch}, resident, {});
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
