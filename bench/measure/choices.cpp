#include "bench/measure/choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/bound_case.h"
#include "bench/measure/timing_loop.h"
#include "bench/measure/tuner.h"
#include "bench/measure/verify.h"
#include "reports/run/statistics.h"

namespace noisefloor {
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

  void verify(const Choice& choice);
  // Those that can be launched.
  std::vector<Candidate> time_warm(const std::vector<Choice>& choices);
  std::vector<double> time_cold(const Choice& choice, int samples);

 private:
  AnyVariant by_choice(AnyVariant variant);
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

AnyVariant ChoiceTimer::by_choice(AnyVariant variant) {
  variant.launch = [this, launch = variant.choices->launch](const AnyProblem& problem, DType dtype,
                                                            std::span<void* const> pointers, const Scratch& scratch,
                                                            const LaunchContext& context) {
    return launch(problem, dtype, pointers, scratch, context, current_);
  };
  return variant;
}

void ChoiceTimer::verify(const Choice& choice) {
  current_ = choice.text;
  const Verdict verdict = verifier_.verify(bound_);
  if (!verdict.correct) throw std::runtime_error(fmt::format("{}: wrong: {}", name_of(choice), verdict.reason));
}

std::vector<Candidate> ChoiceTimer::time_warm(const std::vector<Choice>& choices) {
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

std::vector<double> ChoiceTimer::time_cold(const Choice& choice, int samples) {
  current_ = choice.text;
  return platform_->time_cold(bound_.launch(), samples, bound_.resident());
}

}  // namespace

double TimedChoice::warm_us() const {
  return median(warm);
}

double TimedChoice::cold_us() const {
  return median(cold);
}

std::vector<TimedChoice> tune_choices(Platform& platform, const Case& test_case,
                                      const std::function<void(const std::string&)>& log) {
  const std::vector<Choice> choices = test_case.implementation->variant()->choices->list(
      test_case.problem, test_case.dtype, platform.description().info);
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

TunedCase tune_case(Platform& platform, const Case& test_case, const std::function<void(const std::string&)>& log) {
  TunedCase tuned{{}, "no choice fits"};
  try {
    tuned.best = tune_choices(platform, test_case, log);
  } catch (const OutOfMemory& error) {  // networks ask for more than a small GPU holds
    tuned.why_not = error.what();
  } catch (const std::runtime_error& error) {
    const auto* const of_device = dynamic_cast<const DeviceError*>(&error);
    tuned = {{}, fmt::format("FAILED: {}", error.what()), true, of_device != nullptr && of_device->lost()};
  }
  return tuned;
}

}  // namespace noisefloor
