// The tuner of choices, on a gemm whose choices are its host variant: as it is, slower, wrong, and refused.
#include "bench/measure/choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

constexpr const char* kProblem = "m=32,n=32,k=32";

Platform& host() {
  static const std::unique_ptr<Platform> platform = make_host_platform();
  return *platform;
}

struct Tuned {
  std::vector<std::string> names;  // best first
  std::vector<TimedChoice> choices;
  std::vector<std::string> messages;
  std::map<std::string, int> launches;
};

// Of a variant that offers these choices, the first as its estimate's: "slow..." waits, "wrong" spoils an element,
// "refused" refuses, "lucky" waits but in its first warm time, and any other is the host variant's own launch.
Tuned tune(const std::vector<std::string>& names) {
  Tuned tuned;
  const SuiteEntry& gemm = *suite().find("gemm");
  AnyVariant variant = *gemm.find("host")->variant();
  variant.choices = AnyChoices{
      [&](const AnyProblem&, DType, const DeviceInfo& device) {
        EXPECT_GT(device.sm_count, 0);
        std::vector<Choice> choices;
        for (const std::string& name : names) choices.push_back({name, choices.empty()});
        return choices;
      },
      [&tuned, launch = variant.launch](const AnyProblem& problem, DType dtype, std::span<void* const> pointers,
                                        const Scratch& scratch, const LaunchContext& context, std::string_view choice) {
        constexpr int kLucky[] = {3, 4};  // behind its verification and the probe, which makes for one launch a sample
        constexpr std::chrono::milliseconds kWait{2};
        const int launches = ++tuned.launches[std::string(choice)];
        if (choice == "refused") return failure(StatusCode::unsupported_problem, "too large a tile");
        if (choice.starts_with("slow") ||
            (choice == "lucky" && std::ranges::find(kLucky, launches) == std::end(kLucky)))
          std::this_thread::sleep_for(kWait);
        const Status status = launch(problem, dtype, pointers, scratch, context);
        if (choice == "wrong") store_element(dtype, pointers.back(), 3, 1e3);
        return status;
      }};
  // What launches without naming a choice is not the tuner's.
  variant.launch = [](const AnyProblem&, DType, std::span<void* const>, const Scratch&, const LaunchContext&) {
    return failure(StatusCode::invalid_argument, "no choice was named");
  };
  const Case test_case{&gemm, implementation_of(variant), gemm.workload->parse(kProblem), DType::fp32, kProblem};
  tuned.choices = tune_choices(host(), test_case, [&](const std::string& line) { tuned.messages.push_back(line); });
  for (const TimedChoice& timed : tuned.choices) tuned.names.push_back(timed.choice.text);
  return tuned;
}

std::string error_of(const std::vector<std::string>& names) {
  try {
    tune(names);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(TuneChoices, TheFastOneWins) {
  const Tuned tuned = tune({"slow", "fast", "slower"});
  EXPECT_EQ(tuned.messages, std::vector<std::string>());
  ASSERT_EQ(tuned.choices.size(), 3u);
  EXPECT_EQ(tuned.names.front(), "fast");
  EXPECT_FALSE(tuned.choices.front().choice.estimated);
  for (const TimedChoice& timed : tuned.choices) {
    EXPECT_EQ(timed.choice.estimated, timed.choice.text == "slow");
    EXPECT_EQ(timed.cold.size(), tuned.choices.front().cold.size());  // in turns
    EXPECT_GT(timed.cold.size(), 1u);
    EXPECT_GT(timed.cold_us(), 0);
  }
  EXPECT_LT(10 * tuned.choices.front().warm_us(), tuned.choices.back().warm_us());
  EXPECT_GT(tuned.launches.at("fast"), 0);
}

TEST(TuneChoices, AWrongOneIsAnErrorThatNamesProblemAndChoice) {
  const std::string error = error_of({"slow", "fast", "wrong"});
  EXPECT_EQ(error.rfind(std::string(kProblem) + ", wrong: wrong: d[3] is 1000", 0), 0u) << error;
  EXPECT_EQ(error_of({"wrong", "fast"}).rfind(std::string(kProblem) + ", wrong: wrong: ", 0), 0u);
}

TEST(TuneChoices, ARefusedOneIsLeftOutWithAMessage) {
  const Tuned tuned = tune({"slow", "refused", "fast"});
  EXPECT_EQ(tuned.names, (std::vector<std::string>{"fast", "slow"}));
  ASSERT_EQ(tuned.messages.size(), 1u);
  EXPECT_EQ(tuned.messages.front(),
            std::string(kProblem) + ", refused: left out: unsupported_problem: too large a tile");
  // Without the variant's own there is nothing to compare with.
  EXPECT_NE(error_of({"refused", "fast"}).find("too large a tile"), std::string::npos);
}

TEST(TuneChoices, OnlyThoseNearTheBestAndTheEstimatesAreTimedOnAndFinish) {
  std::vector<std::string> names = {"slow, as estimated"};
  for (int i = 0; i < 8; ++i) names.push_back("slow " + std::to_string(i));
  names.emplace_back("fast");
  const Tuned tuned = tune(names);
  EXPECT_EQ(tuned.names.front(), "fast");
  EXPECT_LT(tuned.names.size(), names.size());
  EXPECT_NE(std::ranges::find(tuned.names, names.front()), tuned.names.end());
  for (const std::string& name : names)
    if (std::ranges::find(tuned.names, name) == tuned.names.end()) {
      EXPECT_LT(tuned.launches.at(name), tuned.launches.at("fast")) << name;
    }
}

// One good time decides nothing: those near the best are timed again.
TEST(TuneChoices, OneThatWasFastAtFirstIsFoundOut) {
  const Tuned tuned = tune({"lucky", "fast"});
  EXPECT_EQ(tuned.names, (std::vector<std::string>{"fast", "lucky"}));
}

TEST(TuneChoices, AProblemWithoutChoicesHasNone) {
  const Tuned tuned = tune({});
  EXPECT_TRUE(tuned.choices.empty());
  EXPECT_TRUE(tuned.launches.empty());
}

}  // namespace
}  // namespace noisefloor
