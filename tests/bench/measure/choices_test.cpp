// The tuner of choices, on a gemm whose choices are its host variant, each said to take a time of its own.
#include "bench/measure/tuner.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/support/counted_variants.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {
namespace {

constexpr const char* kChoiceProblem = "m=8,n=8,k=8";
using Names = std::vector<std::string>;

// The host, where a launch takes the time that it says.
class ChoicePlatform final : public LimitedPlatform {
 public:
  ChoicePlatform() : LimitedPlatform(std::size_t{1} << 30) {}
  std::vector<double> time_cold(const Launch& launch, int samples,
                                std::span<const std::pair<void*, std::size_t>>) override {
    auto times = time_warm(launch, samples, 1, nullptr, {});
    cold.push_back(launched);
    return times;
  }
  std::vector<double> time_warm(const Launch& launch, int samples, int, KeptGraphs*, const Launch&) override {
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) {
      throw_if_failed(launch());
      times.push_back(launch_us);
    }
    return times;
  }

  std::string launched;  // the last launch's choice, and its time
  double launch_us = 0;
  Names cold;  // what was timed cold, in order
};

struct Tuned : TunedCase {
  Names messages, cold;

  Names names() const {
    Names all;
    for (const TimedChoice& timed : best) all.push_back(timed.choice.text);
    return all;
  }
};

// Of a variant that offers these choices with these times, the first as its estimate's. "wrong" spoils an element,
// "refused" refuses, and "lucky" takes no time until it was verified, probed and timed once.
Tuned tune(const std::vector<std::pair<std::string, double>>& offered) {
  constexpr int kLuckyLaunches = 6;  // once, four times and once
  ChoicePlatform platform;
  int lucky = 0;
  AnyVariant variant = host_gemm();
  variant.choices = [&](const AnyProblem&, DType, const DeviceInfo& device) {
    EXPECT_GT(device.sm_count, 0);
    std::vector<Choice> choices;
    for (const auto& [name, us] : offered) choices.push_back({name, choices.empty()});
    return choices;
  };
  variant.launch = [&, launch = variant.launch](const AnyProblem& problem, DType dtype, std::span<void* const> pointers,
                                                const Scratch& scratch, LaunchContext context) {
    const std::string choice(std::exchange(context.choice, {}));
    if (choice.empty()) return failure(StatusCode::invalid_argument, "no choice was named");  // not the tuner's
    if (choice == "no memory") throw OutOfMemory("the GPU is too small");
    if (choice == "lost") throw DeviceError("the GPU fell off the bus", /*lost=*/true);
    if (choice == "refused") return failure(StatusCode::unsupported_problem, "too large a tile");
    platform.launched = choice;
    platform.launch_us = std::map<std::string, double>(offered.begin(), offered.end()).at(choice);
    if (choice == "lucky" && ++lucky <= kLuckyLaunches) platform.launch_us = 0.1;
    const Status status = launch(problem, dtype, pointers, scratch, context);
    if (choice == "wrong") store_element(dtype, pointers.back(), 3, 1e3);
    return status;
  };
  const Case test_case = gemm_case(implementation_of(variant), kChoiceProblem);
  Tuned tuned;
  static_cast<TunedCase&>(tuned) =
      tune_case(platform, test_case, [&](const std::string& line) { tuned.messages.push_back(line); });
  tuned.cold = platform.cold;
  return tuned;
}

TEST(TuneChoices, TheFastOneWins) {
  const Tuned tuned = tune({{"slow", 50}, {"fast", 10}, {"slower", 60}});
  EXPECT_EQ(tuned.messages, Names());
  ASSERT_EQ(tuned.names(), (Names{"fast", "slow", "slower"}));
  for (const TimedChoice& timed : tuned.best) {
    EXPECT_EQ(timed.choice.estimated, timed.choice.text == "slow");
    EXPECT_EQ(timed.cold.size(), tuned.best.front().cold.size());
  }
  EXPECT_EQ(tuned.best.front().warm_us(), 10);
  EXPECT_EQ(tuned.best.front().cold_us(), 10);
  // All in turns.
  EXPECT_EQ(tuned.cold, (Names{"fast", "slow", "slower", "fast", "slow", "slower", "fast", "slow", "slower"}));
}

TEST(TuneChoices, WhatFailedIsSaidAndTheNextCaseCanGoOn) {
  const TunedCase good = tune({{"slow", 50}, {"fast", 10}});
  EXPECT_EQ(good.best.size(), 2u);
  EXPECT_FALSE(good.failed || good.lost);
  const std::string wrong = "FAILED: " + std::string(kChoiceProblem) + ", wrong: wrong: d[3] is 1000";
  struct {
    std::vector<std::pair<std::string, double>> offered;
    std::string why_not;
    bool failed, lost;
  } const cases[] = {{{{"slow", 50}, {"fast", 10}, {"wrong", 5}}, wrong, true, false},
                     {{{"wrong", 50}, {"fast", 10}}, wrong, true, false},
                     {{{"refused", 1}, {"fast", 10}}, "FAILED: unsupported_problem: too large a tile", true, false},
                     {{{"lost", 50}}, "FAILED: the GPU fell off the bus", true, true},
                     {{{"no memory", 50}}, "the GPU is too small", false, false},
                     {{}, "no choice fits", false, false}};
  for (const auto& one : cases) {
    const TunedCase tuned = tune(one.offered);
    EXPECT_TRUE(tuned.best.empty());
    EXPECT_TRUE(tuned.why_not.starts_with(one.why_not)) << tuned.why_not;
    EXPECT_EQ(tuned.failed, one.failed) << one.why_not;
    EXPECT_EQ(tuned.lost, one.lost) << one.why_not;
  }
}

TEST(TuneChoices, ARefusedOneIsLeftOutWithAMessage) {
  const Tuned tuned = tune({{"slow", 50}, {"refused", 1}, {"fast", 10}});
  EXPECT_EQ(tuned.names(), (Names{"fast", "slow"}));
  EXPECT_EQ(tuned.messages,
            (Names{std::string(kChoiceProblem) + ", refused: left out: unsupported_problem: too large a tile"}));
}

TEST(TuneChoices, ThoseNearTheBestAndTheEstimatesGetMoreTimes) {
  const Tuned tuned = tune({{"estimated", 50},
                            {"a", 10},
                            {"b", 10.1},
                            {"c", 10.2},
                            {"d", 10.3},
                            {"e", 10.35},
                            {"f", 10.38},
                            {"g", 10.9},
                            {"h", 12},
                            {"i", 40}});
  // A sample; four in each of one turn within 1.3, two within 1.1 and four within 1.04 of the best.
  const std::map<std::string, std::size_t> samples = {{"a", 29}, {"b", 29}, {"c", 29}, {"d", 29},
                                                      {"e", 29}, {"f", 29}, {"g", 13}, {"estimated", 29}};
  EXPECT_EQ(tuned.names(), (Names{"a", "b", "c", "d", "e", "f", "g", "estimated"}));
  for (const TimedChoice& timed : tuned.best)
    EXPECT_EQ(timed.warm.size(), samples.at(timed.choice.text)) << timed.choice.text;
}

TEST(TuneChoices, AFewAreTimedOnHoweverFarFromTheBest) {
  EXPECT_EQ(tune({{"a", 90}, {"b", 1}, {"c", 50}, {"d", 40}, {"e", 30}, {"f", 60}, {"g", 70}}).names(),
            (Names{"b", "e", "d", "c", "f", "a"}));
}

// One good time decides nothing: those near the best are timed again.
TEST(TuneChoices, OneThatWasFastAtFirstIsFoundOut) {
  const Tuned tuned = tune({{"lucky", 50}, {"fast", 10}});
  EXPECT_EQ(tuned.names(), (Names{"fast", "lucky"}));
  EXPECT_EQ(tuned.best.back().warm.front(), 0.1);
  EXPECT_EQ(tuned.best.back().warm_us(), 50);
}

TEST(TuneChoices, OnAGpuComparesWithAQuickStandIn) {
  constexpr const char* kSampledProblem = "m=256,n=256,k=320";
  HostAsGpu<ScriptedPlatform> platform(90);
  CountedVariants variants({kNaive, kTiled, kPtxSm90a});
  AnyVariant variant = *variants.named("ptx_sm90a").variant();
  variant.choices = [](const AnyProblem&, DType, const DeviceInfo&) {
    return std::vector<Choice>{{"only", /*estimated=*/true}};
  };
  variant.launch = [&, launch = variant.launch](const AnyProblem& problem, DType dtype, std::span<void* const> pointers,
                                                const Scratch& scratch, const LaunchContext& context) {
    platform.clock_us += 10;
    LaunchContext plain = context;  // its own launcher knows no choice
    plain.choice = {};
    return launch(problem, dtype, pointers, scratch, plain);
  };
  const Case test_case{&variants.entry(), implementation_of(variant), variants.op().parse(kSampledProblem), DType::fp32,
                       kSampledProblem};
  EXPECT_EQ(tune_case(platform, test_case, [](const std::string&) {}).best.size(), 1u);
  variants.launches.erase("ptx_sm90a");
  EXPECT_EQ(variants.launches, (std::map<std::string, int>{{"tiled", 1}}));
}

}  // namespace
}  // namespace noisefloor
