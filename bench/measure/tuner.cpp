#include "bench/measure/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "bench/measure/bound_case.h"
#include "bench/measure/timing_loop.h"

namespace noisefloor {
namespace {

constexpr int kFirstSamples = 3;
constexpr int kFinalSamples = 15;
constexpr std::size_t kFinalists = 8;

}  // namespace

std::vector<Candidate*> best_of(std::span<Candidate> candidates, double factor, std::size_t fewest, std::size_t most) {
  std::vector<std::pair<double, Candidate*>> timed;
  for (Candidate& candidate : candidates) timed.emplace_back(candidate.median_us(), &candidate);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& l, const auto& r) { return l.first < r.first; });
  std::vector<Candidate*> best;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const auto& [us, candidate] = timed[i];
    if (candidate->stays || i < fewest || (i < most && us <= factor * timed.front().first)) best.push_back(candidate);
  }
  return best;
}

std::vector<Candidate*> round_robin(std::vector<Candidate*> candidates, int turns, int samples,
                                    const TakeSamples& sampler) {
  for (int turn = 0; turn < turns; ++turn)
    std::erase_if(candidates, [&](Candidate* candidate) {
      const auto us = sampler(candidate->index, samples);
      if (us) candidate->us.insert(candidate->us.end(), us->begin(), us->end());
      return !us;
    });
  return candidates;
}

// Nothing where the library refuses a launch, or its launch waits for the device.
std::optional<std::vector<double>> HarnessRanker::times(Caches caches, const Launch& launch, int samples) {
  Fixture& fixture = verifier_->fixture();
  Platform& platform = fixture.platform();
  try {
    if (!platform.try_launch(launch)) return std::nullopt;  // also loads the kernel
    if (caches == Caches::cold) return platform.time_cold(launch, samples, fixture.resident());
    const auto warm = [&](int some, int repeats) { return platform.time_warm(launch, some, repeats); };
    return warm(samples, platform.description().is_host ? 1 : probe_warm_launches(warm).repeats);
  } catch (const DeviceError& error) {
    if (error.lost()) throw;
  } catch (const std::runtime_error&) {  // the library refused a later launch
  }
  return std::nullopt;
}

Ranking HarnessRanker::rank(Caches caches, int count, const std::function<Status(int)>& launch) {
  const auto start = std::chrono::steady_clock::now();
  const TakeSamples sampler = [&](std::size_t index, int samples) {
    return times(
        caches, [&] { return launch(static_cast<int>(index)); }, samples);
  };
  Ranking ranking;
  std::vector<Candidate> ran;
  for (int i = 0; i < count; ++i) {
    ++ranking.tried;
    if (auto us = sampler(static_cast<std::size_t>(i), kFirstSamples))
      ran.push_back({static_cast<std::size_t>(i), std::move(*us)});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > budget_seconds_ && !ran.empty()) break;
  }
  ranking.ran = static_cast<int>(ran.size());
  constexpr double kAny = std::numeric_limits<double>::infinity();
  for (const Candidate* finalist : round_robin(best_of(ran, kAny, 0, kFinalists), 1, kFinalSamples, sampler))
    ranking.fastest.push_back({finalist->median_us(), static_cast<int>(finalist->index)});
  std::sort(ranking.fastest.begin(), ranking.fastest.end(),
            [](const Timed& a, const Timed& b) { return a.microseconds < b.microseconds; });
  if (ranking.fastest.empty())
    ranking.status = failure(StatusCode::unsupported_problem, "the library refused every algorithm that it offered");
  return ranking;
}

bool HarnessRanker::accurate(const std::function<Status()>& launch) {
  verifier_->fixture().reset_outputs();
  return verifier_->fixture().platform().try_launch(launch) && verifier_->judge_outputs().correct();
}

void tune_ready(Ready& ready, Verifier& verifier, const Scratch& scratch) {
  Fixture& fixture = verifier.fixture();
  HarnessRanker ranker(verifier);
  verifier.expect();  // so that every element is judged
  ready.tune(fixture.pointers(), scratch, fixture.platform().context(), ranker);
  fixture.platform().synchronize();
}

namespace {

constexpr int kSamples = 4;  // of a turn: what the platform queues at once
constexpr std::size_t kFewestFinalists = 5, kMostFinalists = 40;
constexpr double kFinalistWithin = 1.10;  // of the best warm time
constexpr int kColdTurns = 3;

struct Stage {
  double within;  // of the best warm time
  int turns;
};
constexpr Stage kStages[] = {{1.3, 1}, {1.1, 2}, {1.04, 4}};

// The case's variant, launched by the choice at hand.
class ChoiceTimer {
 public:
  using Log = std::function<void(const std::string&)>;

  ChoiceTimer(Platform& platform, const Case& test_case, const Log& log)
      : platform_(&platform),
        problem_(test_case.text),
        log_(log),
        variant_(by_choice(*test_case.implementation->variant())),
        fixture_(platform, *test_case.entry, test_case.problem, test_case.dtype, /*seed=*/1),
        verifier_(fixture_, kQuickVerification),
        bound_(fixture_, *implementation_of(variant_)) {}
  ChoiceTimer(const ChoiceTimer&) = delete;  // the variant points into it

  void verify(const Choice& choice) {
    current_ = choice.text;
    const Verdict verdict = verifier_.verify(bound_);
    if (!verdict.correct()) throw failure("{}: wrong: {}", name_of(choice), verdict.reason);
  }

  // Those that can be launched.
  std::vector<Candidate> time_warm(const std::vector<Choice>& choices) {
    current_ = choices.front().text;
    const Launch launch = bound_.launch(/*overlapping=*/true);
    const int repeats =
        probe_warm_launches([&](int samples, int some) { return platform_->time_warm(launch, samples, some); }).repeats;
    const auto sample = [&](std::size_t index, int samples) {
      current_ = choices[index].text;
      return platform_->time_warm(launch, samples, repeats);
    };
    std::vector<Candidate> timed;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      try {
        timed.push_back({i, sample(i, 1), choices[i].estimated});
      } catch (const std::runtime_error& error) {
        const auto* const device = dynamic_cast<const DeviceError*>(&error);
        if (choices[i].estimated || (device != nullptr && device->lost())) throw;
        log_(fmt::format("{}: left out: {}", name_of(choices[i]), error.what()));
      }
    }
    for (const Stage& stage : kStages)
      round_robin(best_of(timed, stage.within, kFewestFinalists, timed.size()), stage.turns, kSamples, sample);
    return timed;
  }

  std::vector<double> time_cold(const Choice& choice, int samples) {
    current_ = choice.text;
    return platform_->time_cold(bound_.launch(), samples, bound_.resident());
  }

 private:
  AnyVariant by_choice(AnyVariant variant) {
    variant.launch = [this, launch = variant.launch](const AnyProblem& problem, DType dtype,
                                                     std::span<void* const> pointers, const Scratch& scratch,
                                                     LaunchContext context) {
      context.choice = current_;
      return launch(problem, dtype, pointers, scratch, context);
    };
    return variant;
  }

  std::string name_of(const Choice& choice) const { return fmt::format("{}, {}", problem_, choice.text); }

  Platform* platform_;
  std::string problem_;
  Log log_;
  std::string_view current_;
  AnyVariant variant_;
  Fixture fixture_;
  Verifier verifier_;
  BoundCase bound_;
};

// Throws std::runtime_error for a wrong output, and what the estimate's launch throws.
std::vector<TimedChoice> best_choices(Platform& platform, const Case& test_case, const ChoiceTimer::Log& log) {
  const std::vector<Choice> choices =
      test_case.implementation->variant()->choices(test_case.problem, test_case.dtype, platform.description().info);
  if (choices.empty()) return {};
  ChoiceTimer timer(platform, test_case, log);
  timer.verify(choices.front());
  std::vector<Candidate> warm = timer.time_warm(choices), cold;
  const auto finalists = best_of(warm, kFinalistWithin, kFewestFinalists, kMostFinalists);
  std::vector<Candidate*> turns;
  cold.reserve(finalists.size());
  for (const Candidate* finalist : finalists) {
    timer.verify(choices[finalist->index]);
    turns.push_back(&cold.emplace_back(Candidate{finalist->index, {}}));
  }
  round_robin(turns, kColdTurns, kSamples,
              [&](std::size_t index, int samples) { return timer.time_cold(choices[index], samples); });
  std::vector<TimedChoice> result;
  for (std::size_t i = 0; i < finalists.size(); ++i)
    result.push_back({choices[finalists[i]->index], std::move(finalists[i]->us), std::move(cold[i].us)});
  return result;
}

}  // namespace

TunedCase tune_case(Platform& platform, const Case& test_case, const std::function<void(const std::string&)>& log) {
  TunedCase tuned{{}, "no choice fits"};
  try {
    tuned.best = best_choices(platform, test_case, log);
  } catch (const OutOfMemory& error) {  // networks ask for more than a small GPU holds
    tuned.why_not = error.what();
  } catch (const std::runtime_error& error) {
    const auto* const of_device = dynamic_cast<const DeviceError*>(&error);
    tuned = {{}, fmt::format("FAILED: {}", error.what()), true, of_device != nullptr && of_device->lost()};
  }
  return tuned;
}

}  // namespace noisefloor
