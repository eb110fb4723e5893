#include "bench/measure/choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/bound_case.h"
#include "bench/measure/timing_loop.h"
#include "bench/measure/verify.h"
#include "reports/statistics.h"

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

// At most `most` of those within `factor` of the best warm time, but no fewer than kFewestFinalists, and the
// estimate's; best first.
std::vector<TimedChoice*> best_of(const std::vector<TimedChoice*>& choices, double factor, std::size_t most) {
  std::vector<std::pair<double, TimedChoice*>> timed;
  for (TimedChoice* choice : choices) timed.emplace_back(choice->warm_us(), choice);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& l, const auto& r) { return l.first < r.first; });
  std::vector<TimedChoice*> best;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const auto& [us, choice] = timed[i];
    if (choice->choice.estimated || i < kFewestFinalists || (i < most && us <= factor * timed.front().first))
      best.push_back(choice);
  }
  return best;
}

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
        verifier_(fixture_, Verifier::kQuickOracleFlops),
        bound_(fixture_, *implementation_of(variant_)) {}
  ChoiceTimer(const ChoiceTimer&) = delete;  // the variant points into it

  void verify(const TimedChoice& choice);
  // Returns those that can be launched.
  std::vector<TimedChoice*> time_warm(std::vector<TimedChoice>& choices);
  void time_cold(const std::vector<TimedChoice*>& choices);

 private:
  AnyVariant by_choice(AnyVariant variant);
  std::string name_of(const TimedChoice& choice) const { return fmt::format("{}, {}", problem_, choice.choice.text); }

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

void ChoiceTimer::verify(const TimedChoice& choice) {
  current_ = choice.choice.text;
  const Verdict verdict = verifier_.verify(bound_);
  if (!verdict.correct) throw std::runtime_error(fmt::format("{}: wrong: {}", name_of(choice), verdict.reason));
}

std::vector<TimedChoice*> ChoiceTimer::time_warm(std::vector<TimedChoice>& choices) {
  current_ = choices.front().choice.text;
  const Launch launch = bound_.launch(/*overlapping=*/true);
  const int repeats = probe_warm_launches([&](int samples, int some) {
                        return platform_->time_warm(launch, samples, some);
                      }).repeats;
  std::vector<TimedChoice*> timed;
  for (TimedChoice& choice : choices) {
    current_ = choice.choice.text;
    try {
      choice.warm = platform_->time_warm(launch, 1, repeats);
      timed.push_back(&choice);
    } catch (const std::runtime_error& error) {
      const auto* const device = dynamic_cast<const DeviceError*>(&error);
      if (choice.choice.estimated || (device != nullptr && device->lost())) throw;
      log_(fmt::format("{}: left out: {}", name_of(choice), error.what()));
    }
  }
  for (const Stage& stage : kStages) {
    const auto left = best_of(timed, stage.within, timed.size());
    for (int turn = 0; turn < stage.turns; ++turn)
      for (TimedChoice* choice : left) {
        current_ = choice->choice.text;
        const auto samples = platform_->time_warm(launch, kSamples, repeats);
        choice->warm.insert(choice->warm.end(), samples.begin(), samples.end());
      }
  }
  return timed;
}

void ChoiceTimer::time_cold(const std::vector<TimedChoice*>& choices) {
  const Launch launch = bound_.launch();
  const auto resident = bound_.resident();
  for (int turn = 0; turn < kColdTurns; ++turn)
    for (TimedChoice* choice : choices) {
      current_ = choice->choice.text;
      const auto samples = platform_->time_cold(launch, kSamples, resident);
      choice->cold.insert(choice->cold.end(), samples.begin(), samples.end());
    }
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
  std::vector<TimedChoice> choices;
  for (Choice& choice : test_case.implementation->variant()->choices->list(test_case.problem, test_case.dtype,
                                                                           platform.description().info))
    choices.push_back({std::move(choice), {}, {}});
  if (choices.empty()) return {};
  ChoiceTimer timer(platform, test_case, log);
  timer.verify(choices.front());
  const auto finalists = best_of(timer.time_warm(choices), kFinalistWithin, kMostFinalists);
  for (const TimedChoice* finalist : finalists) timer.verify(*finalist);
  timer.time_cold(finalists);
  std::vector<TimedChoice> result;
  for (TimedChoice* finalist : finalists) result.push_back(std::move(*finalist));
  return result;
}

}  // namespace noisefloor
