// A plugin's case: what is asked of it beyond a variant of ours, by scripted platforms; and what is made of the answers
// of a process that measures one, by a stub.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "bench/measure/case_runner.h"
#include "bench/measure/case_server.h"
#include "bench/measure/worker.h"
#include "bench/sweep/suite.h"
#include "reports/run/columns.h"
#include "reports/run/run_files.h"
#include "tests/support/scripted_library.h"

namespace noisefloor {
namespace {

constexpr const char* kProblem = "m=4,n=4,k=4";
constexpr const char* kLate = "wrote tensor 'd' when its launch had returned: work of a thread is in no time";

ImplementationPtr plugin_of(const AnyVariant& variant, const std::string& file) {
  const auto mine = made_as(variant, "mine", Kind::host);
  mine->plugin = file;
  return mine;
}

// A GPU's side of it: a recording holds what was put on the stream, and L2 can be set aside. And a host's: what a
// launch left to a thread, which is done when somebody looks at the inputs, or waits.
class PluginsPlatform final : public ScriptedPlatform {
 public:
  bool on_other_stream = false;
  std::vector<std::size_t> set_aside;  // by call
  int asked = 0, waited = 0;
  std::function<void()> left;

  void work() {
    if (const auto now = std::exchange(left, nullptr)) now();
  }
  std::uint64_t checksum(const void* data, std::size_t bytes) override {
    work();
    return ScriptedPlatform::checksum(data, bytes);
  }
  void wait_for_threads() override {
    ++waited;
    work();
  }

  std::unique_ptr<Recording> record(const Launch& launch) override {
    if (!on_other_stream) return ScriptedPlatform::record(launch);
    throw_if_failed(launch());  // nothing of it is recorded: it runs at once
    struct Nothing final : Recording {
      void replay() override {}
    };
    return std::make_unique<Nothing>();
  }
  std::size_t take_back_l2() override {
    const auto call = static_cast<std::size_t>(asked++);
    return call < set_aside.size() ? set_aside[call] : 0;
  }
};

class PluginCase : public testing::Test {
 protected:
  PluginsPlatform platform;

  // Of gemm's host variant, whose launches from this one on leave their work to a thread.
  AnyVariant leaving(int from) {
    AnyVariant variant = platform.taking(5, host_gemm());
    variant.launch = [this, from, calls = 0, launch = variant.launch](
                         const AnyProblem& problem, DType dtype, std::span<void* const> pointers,
                         const Scratch& scratch, const LaunchContext& context) mutable {
      if (++calls < from) return launch(problem, dtype, pointers, scratch, context);
      platform.clock_us += 1;
      platform.left = [=, given = std::vector<void*>(pointers.begin(), pointers.end())] {
        throw_if_failed(launch(problem, dtype, given, scratch, context));
      };
      return success();
    };
    return variant;
  }

  SweepRow run(const std::string& file = "mine.so", std::optional<AnyVariant> variant = std::nullopt) {
    const auto mine = plugin_of(variant.value_or(platform.taking(5, host_gemm())), file);
    return CaseRunner(platform, nullptr, {}).run(gemm_case(mine, kProblem)).row;
  }
};

TEST_F(PluginCase, WorkOfAThreadIsSeenWhenItsLaunchHasReturned) {
  int launches = 0;
  ASSERT_EQ(run("mine.so", followed_by(platform.taking(5, host_gemm()), [&](auto) { ++launches; })).status,
            Outcome::ok);
  for (const int from : {1, 2, 3, launches - 1, launches}) {  // at once, and while it is timed: the last two are not
    const SweepRow row = run("mine.so", leaving(from));
    EXPECT_EQ(row.status, Outcome::incorrect);
    EXPECT_EQ(row.reason, kLate);
    EXPECT_FALSE(row.time_cold_us.has_value());
  }
}

TEST_F(PluginCase, WorkOnAnotherStreamIsNotInTheReplay) {
  platform.on_other_stream = true;
  const SweepRow row = run();
  EXPECT_EQ(row.status, Outcome::incorrect);
  EXPECT_NE(row.reason.find("nan"), std::string::npos) << row.reason;
  EXPECT_TRUE(platform.cold_calls.empty()) << "it is not timed";
  EXPECT_EQ(run("").status, Outcome::ok) << "of ours that is a test's business";
}

TEST_F(PluginCase, L2ThatItSetAsideIsTakenBackAndThatOfTimedLaunchesIsNoTime) {
  for (const char* phase : {"", "cold", "warm"}) {
    platform.asked = 0;
    platform.set_aside.push_back(4096);
    const SweepRow row = run();
    EXPECT_EQ(row.status, *phase ? Outcome::incorrect : Outcome::ok);
    EXPECT_TRUE(row.reason.starts_with(*phase ? fmt::format("after the {} launches: its launches set L2 aside", phase)
                                              : "took back 4096"))
        << row.reason;
    EXPECT_EQ(row.time_cold_us.has_value(), !*phase);
    platform.set_aside.back() = 0;
  }
}

using Json = nlohmann::json;

// The other side of a paired comparison: what the plugin's own process answers.
class PluginInAPair : public PluginCase {
 protected:
  Json ready(const AnyVariant& variant) {
    auto offered = std::make_unique<Suite>(suite());
    offered->add("gemm", plugin_of(variant, "mine.so"));
    suite_.swap(offered);
    server_.emplace(platform, *suite_);
    return ask({{"ask", "ready"},
                {"variant", "mine"},
                {"dtype", "fp32"},
                {"problem", {{"op", "gemm"}, {"problem", kProblem}}}});
  }
  Json ask(const Json& question) { return server_->answer(question); }
  // What is wrong after a cold and a warm block.
  std::string block() {
    for (const Json& times :
         {Json{{"ask", "cold"}, {"samples", 2}}, Json{{"ask", "warm"}, {"samples", 2}, {"repeats", 3}}}) {
      ask({{"ask", "poison"}});
      if (const Json answer = ask(times); !answer.contains("us")) return answer.dump();
      if (const Json answer = ask({{"ask", "judge"}}); answer.contains("wrong")) return answer["wrong"];
    }
    return "";
  }

 private:
  std::unique_ptr<Suite> suite_;
  std::optional<CaseServer> server_;
};

TEST_F(PluginInAPair, WorkOfAThreadOrOfAnotherStreamIsNotCompared) {
  EXPECT_EQ(ready(leaving(2))["wrong"], kLate);
  EXPECT_TRUE(ask({{"ask", "cold"}, {"samples", 2}}).contains("failed"));
  platform.on_other_stream = true;
  EXPECT_TRUE(ready(platform.taking(5, host_gemm())).contains("wrong"));
}

TEST_F(PluginInAPair, WorkOfAThreadIsSeenWhereItBeganWithItSinceItWasReady) {
  int launches = 0;
  EXPECT_FALSE(ready(followed_by(platform.taking(5, host_gemm()), [&](auto) { ++launches; })).contains("wrong"));
  for (const int from : {1, 2, 3}) {
    EXPECT_FALSE(ready(leaving(launches + from)).contains("wrong"));
    EXPECT_EQ(block(), "") << "it is done when somebody looks";
    EXPECT_EQ(ask({{"ask", "replay"}})["wrong"], kLate);
  }
  EXPECT_FALSE(ready(platform.taking(5, host_gemm())).contains("wrong"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(block(), "") << "a right one is so in every block";
  EXPECT_FALSE(ask({{"ask", "replay"}}).contains("wrong"));
}

TEST_F(PluginInAPair, L2ThatABlockSetAsideIsWrong) {
  platform.set_aside = {4096, 0, 4096};
  EXPECT_FALSE(ready(platform.taking(5, host_gemm())).contains("wrong")) << "taken back before anything is timed";
  EXPECT_EQ(block(), "its launches set L2 aside for persisting accesses");
}

// A process that answers every question with the same, but its number.
class PluginProcess : public testing::Test {
 protected:
  std::unique_ptr<Platform> platform = make_host_platform();
  Json answer;

  PluginProcess() {
    SweepRow row;
    row.status = Outcome::ok;
    row.time_cold_us = 5, row.time_warm_us = 4, row.samples = 2, row.max_rel_error = 1e-7, row.tolerance = 1e-6;
    row.device = "another device", row.commit = "another commit", row.registers = 32;
    for (const SweepColumn& column : sweep_columns()) answer["row"][column.name] = column.write(row);
    RowSamples samples;
    samples.cold_us = {5, 5}, samples.warm_us = {4}, samples.cold_batches = {2};
    answer["samples"] = samples_line({{"gemm", kProblem, "fp32"}, "mine"}, samples);
    answer["l2_error"] = 1e-8;
    answer["l2_tolerance"] = 1e-6;
  }
  CaseResult run() {
    const std::string script = fmt::format(
        R"(import json, sys
print(json.dumps({{"facts": {{}}}}), flush=True)
for line in sys.stdin:
    print(json.dumps({{**json.loads({0}), "number": json.loads(line)["number"]}}), flush=True)
)",
        Json(answer.dump()).dump());
    const auto worker = std::make_shared<Worker>("the process of mine.so", ChildCommand{{"python3", "-c", script}});
    return CaseRunner(*platform, nullptr, {})
        .run(gemm_case(implementation_of_plugin(worker, "mine.so", "mine", Kind::host, Arch::host), kProblem));
  }
  void expect_refused(const std::string& words) {
    const CaseResult result = run();
    EXPECT_EQ(result.row.status, Outcome::cuda_error);
    EXPECT_NE(result.row.reason.find("the process of mine.so gave a"), std::string::npos) << result.row.reason;
    EXPECT_NE(result.row.reason.find(words), std::string::npos) << result.row.reason;
    EXPECT_FALSE(result.row.time_cold_us.has_value());
    EXPECT_TRUE(result.samples.cold_us.empty());
    EXPECT_FALSE(result.device_lost);
  }
};

TEST_F(PluginProcess, FillsWhatTheSweepDoesNotKnow) {
  const CaseResult result = run();
  EXPECT_EQ(result.row.status, Outcome::ok) << result.row.reason;
  EXPECT_EQ(result.row.time_cold_us, 5);
  EXPECT_EQ(result.row.registers, 32);
  EXPECT_EQ(result.row.device, platform->description().name);
  EXPECT_NE(result.row.commit, "another commit");
  EXPECT_EQ(result.samples.cold_us, (std::vector<double>{5, 5}));
  EXPECT_EQ(result.verdict.max_rel_error, 1e-7);
  EXPECT_EQ(result.verdict.l2_tolerance, 1e-6);
}

TEST_F(PluginProcess, MayHaveLostItsDeviceWithoutOurs) {
  answer["lost"] = true;
  answer["row"]["status"] = "cuda_error";
  const CaseResult result = run();
  EXPECT_EQ(result.row.status, Outcome::cuda_error);
  EXPECT_FALSE(result.device_lost);
}

TEST_F(PluginProcess, IsNotBelievedWhatMakesNoSense) {
  const Json right = answer;
  const std::string other = samples_line({{"gemm", kProblem, "fp32"}, "another"}, {});
  const std::tuple<const char*, Json, const char*> cases[] = {{"/row/time_warm_us", "", "an ok row without its times"},
                                                              {"/row/time_cold_us", "-5", "'-5' is not a time above 0"},
                                                              {"/row/status", "fast", "'fast' is not a status"},
                                                              {"/row", "none", "cannot be understood"},
                                                              {"/l2_tolerance", nullptr, "cannot be understood"},
                                                              {"/samples", other, "it is of another case"},
                                                              {"/samples", "[1]", "is not a JSON object"}};
  for (const auto& [field, value, words] : cases) {
    answer = right;
    answer[Json::json_pointer(field)] = value;
    expect_refused(words);
  }
}

}  // namespace
}  // namespace noisefloor
