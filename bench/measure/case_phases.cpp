// The phases of a case's timing: which are wanted, and each begun on poisoned outputs and judged.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/counters/nvtx.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/timing_loop.h"
#include "bench/platform/build_info.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

struct TimedPhase {
  const char *phase, *name;
  void (TimingLoop::*take)();
};
constexpr TimedPhase kTimedPhases[] = {{"cold", "cold", &TimingLoop::cold},
                                       {"warm", "warm", &TimingLoop::warm},
                                       {"serial", "serial warm", &TimingLoop::warm_serial},
                                       {"weights", "weights-cold", &TimingLoop::weights_cold}};

}  // namespace

// What an earlier row has is not taken again.
std::vector<std::string> CaseRunner::phases_to_take(const Case& test_case, bool serial,
                                                    const CaseResult& result) const {
  std::vector<std::string> phases = {"cold", "warm"};
  if (serial) phases.emplace_back("serial");
  const Implementation& implementation = *test_case.implementation;
  if (test_case.weights.value_or(0) != 0 && !implementation.elsewhere() && implementation.plugin.empty())
    phases.emplace_back("weights");
  if (result.kept)
    std::erase_if(phases, [&](const std::string& one) { return has_phase(result.row.phases, one, options_.phases); });
  return phases;
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

// The first launch was verified before the timing. A variant that is right once and wrong later (a counter that is not
// reset, a race between launches, nothing inside a graph, a result that it kept from other inputs) shows in what the
// last launch of a phase left: its outputs were poisoned before, and the phase before it had other inputs.
bool CaseRunner::time_phase(const char* name, std::size_t inputs, Contender& timed, CaseResult& result,
                            const Phase& phase) {
  timed.move_to(0);
  timed.poison(inputs);
  progress_.enter(fmt::format("{} launches", name));
  phase();
  const Verdict verdict = timed.judge();
  if (verdict.correct()) return true;
  result.row.status = Outcome::incorrect;
  result.row.reason = fmt::format("after the {} launches: {}", name, verdict.reason);
  return false;
}

// Whether it now has times. `serial`: its launches may overlap, and are timed behind ordinary edges too. A kept row
// whose missing phases were disturbed stays as it was: the next sweep takes them.
bool CaseRunner::time(const Case& test_case, Contender& timed, bool serial, const EarlierRow* earlier,
                      CaseResult& result) {
  if (!result.kept) return take_phases(test_case, timed, serial, earlier, result);
  CaseResult anew = result;
  try {
    if (take_phases(test_case, timed, serial, earlier, anew) || anew.row.status != Outcome::throttled) {
      result = std::move(anew);
      return result.row.status == Outcome::ok;
    }
  } catch (const Throttled& error) {
    anew.row.reason = error.what();
  }
  add_note(fmt::format("kept without its missing phases: {}", anew.row.reason), result);
  return true;
}

bool CaseRunner::take_phases(const Case& test_case, Contender& timed, bool serial, const EarlierRow* earlier,
                             CaseResult& result) {
  const NvtxRange range(test_case.id().name());
  TimingLoop loop(timed, timing_options());
  const auto disturbed = [&] { return loop.timing().others.in_the_way; };
  std::vector<std::string> phases = phases_to_take(test_case, serial, result);
  std::size_t inputs = 0;
  for (const auto& [phase, name, take] : kTimedPhases) {
    if (disturbed() || std::ranges::find(phases, phase) == phases.end()) continue;
    try {
      if (!time_phase(name, std::exchange(inputs, 1 - inputs), timed, result, [&, take = take] { (loop.*take)(); }))
        return false;
    } catch (const OutOfMemory& error) {  // copies of weights are no reason to lose the other times
      if (take != &TimingLoop::weights_cold) throw;
      std::erase(phases, phase);
      const std::string why = fmt::format("no {} launches: {}", name, error.what());
      std::string& reason = result.row.reason;  // of a kept row it may say so already
      if (reason.find(why) == std::string::npos) reason += (reason.empty() ? "" : "; ") + why;
    }
  }
  const bool plugin = !test_case.implementation->plugin.empty();  // it may have begun since to leave work to others
  if (plugin && !disturbed() && !take_replay(timed, result)) return false;
  Timing timing = loop.timing();
  if (result.kept) keep_other_phases(*earlier, phases, timing);
  take_samples(timing, result);
  for (const std::string& phase : phases) set_phase(result.row.phases, phase, options_.phases);
  if (std::ranges::count(phases, "cold") + std::ranges::count(phases, "warm") > 0) {
    result.row.measured_utc = utc_now();
    result.row.commit = build_info().commit;
  }
  return result.row.status == Outcome::ok;
}

void CaseRunner::time_warm_only(Contender& timed, CaseResult& result, std::optional<double> to_beat_us) {
  TimingLoop loop(timed, timing_options());
  const auto warm = [&] {
    const double once = loop.probe_warm();
    if (to_beat_us && once > 2 * *to_beat_us) {
      result.samples.warm_us = {once};
    } else {
      loop.warm();
      result.samples.warm_us = loop.timing().others.in_the_way ? std::vector{once} : loop.timing().warm_us;
    }
  };
  if (!time_phase("warm", 0, timed, result, warm)) return;
  result.row.time_warm_us = median(result.samples.warm_us);
  result.row.status = Outcome::ok;
}

}  // namespace noisefloor
