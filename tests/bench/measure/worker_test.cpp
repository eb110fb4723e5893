// A worker that is right, wrong, dead, hung or babbling; by a stub in Python, on the host.
#include "bench/measure/worker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "bench/measure/case_runner.h"
#include "bench/measure/pair.h"
#include "bench/sweep/suite.h"
#include "tests/support/refusal.h"
#include "tests/support/scripted_library.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

ImplementationPtr stub() {
  const auto one = std::make_shared<MadeBy>("stub_eager", Kind::baseline, nullptr);
  one->in_worker = true;
  return one;
}

// Whether a process ends within two minutes: it is not there, or nobody has asked yet how it ended (Z).
bool gone(int process) {
  for (int i = 0; i < 12'000; ++i) {
    std::string text;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), text);
    if (text.empty() || text.find(") Z ") != std::string::npos) return true;
    usleep(10'000);
  }
  return false;
}

class InAWorker : public testing::Test {
 protected:
  TemporaryFolder folder;
  std::unique_ptr<Platform> platform = make_host_platform();
  RunnerOptions options;
  Ceilings ceilings = low_ceilings();
  std::unique_ptr<Worker> worker;

  // To `question` it answers as `behaviour` says (stub_worker.py).
  void start(const std::string& question = "", const std::string& behaviour = "", WorkerOptions limits = {}) {
    worker = std::make_unique<Worker>(
        "the stub",
        ChildCommand{{"python3", "tests/bench/measure/stub_worker.py", question, behaviour}, {{"STUB_LOG", log()}}},
        limits);
    options.worker = worker.get();
  }
  CaseResult run(const char* problem = "m=4,n=4,k=4") {
    return CaseRunner(*platform, &ceilings, options).run(gemm_case(stub(), problem));
  }
  std::string log() const { return (folder.path() / "log").string(); }
  std::string asked() const {
    std::ostringstream text;
    text << std::ifstream(log()).rdbuf();
    return text.str();
  }
  void expect(const CaseResult& result, Outcome status, const std::string& reason) {
    EXPECT_EQ(result.row.status, status) << result.row.reason;
    EXPECT_EQ(result.row.reason, reason);
    EXPECT_FALSE(result.row.time_cold_us.has_value());
    EXPECT_FALSE(result.device_lost) << "this process can go on";
  }
};

TEST_F(InAWorker, ARowIsAsAnyOther) {
  start();
  EXPECT_EQ(worker->facts(), (Worker::Facts{{"stub", "1.0"}}));
  const CaseResult result = run();
  const SweepRow& row = result.row;
  EXPECT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_EQ(row.time_cold_us, 5);
  EXPECT_EQ(row.time_warm_us, 4);
  EXPECT_EQ(row.stop, "converged");
  EXPECT_EQ(static_cast<std::size_t>(row.samples.value()), result.samples.cold_us.size());
  EXPECT_EQ(row.max_rel_error, 0);
  EXPECT_EQ(row.peak_memory_bytes, 4096);
  EXPECT_EQ(row.counter_status, "not_collected");
  EXPECT_TRUE(row.pct_of_roof.has_value());
  const std::string log = asked();
  EXPECT_TRUE(log.starts_with("ready stub_eager m=4,n=4,k=4\npoison  \ncold")) << log;
  EXPECT_NE(log.find("warm"), std::string::npos);
  EXPECT_TRUE(log.ends_with("judge  \nsignature stub_eager m=4,n=4,k=4\nrelease  \n")) << log;
}

TEST_F(InAWorker, ASignatureThatIsNoTextIsNone) {
  start("signature", R"({"signature": 7})");
  const SweepRow row = run().row;
  EXPECT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_EQ(row.signature, "");
}

TEST_F(InAWorker, OurTensorsGiveWayToItsOwn) {
  const Case theirs = gemm_case(stub());
  Case ours = theirs;
  ours.implementation = theirs.entry->find("host");
  ASSERT_NE(ours.implementation, nullptr);
  const std::size_t all = std::size_t{1} << 30;
  for (const bool kept : {true, false}) {
    start("ready", "full");  // the first time
    LimitedPlatform limited(all);
    CaseRunner runner(limited, &ceilings, options);
    if (kept) {
      EXPECT_EQ(runner.run(ours).row.status, Outcome::ok);
      EXPECT_LT(limited.free_bytes(), all);
    }
    const CaseResult result = runner.run(theirs);
    EXPECT_EQ(result.row.status, kept ? Outcome::ok : Outcome::out_of_memory) << result.row.reason;
    EXPECT_EQ(limited.free_bytes(), all);
    if (kept) {
      EXPECT_EQ(runner.run_pair(ours, theirs).wrong, "") << "ours are made anew for it";
    }
  }
}

TEST_F(InAWorker, ALossyPeerIsHeldToItsOwnErrorsAndSaysHowItIsCalled) {
  for (const char* l2 : {"0.04", "0.06"}) {
    start("ready", fmt::format(R"({{"errors": [{{"max": 0.2, "l2": {}}}], "algorithm": "peer.f", "lossy": "8 bits", )"
                               R"("allowed": {{"max": 0.25, "l2": 0.05}}}})",
                               l2));
    const SweepRow row = run().row;
    EXPECT_EQ(row.status == Outcome::ok, std::string(l2) == "0.04") << row.reason;
    EXPECT_EQ(std::tie(row.algorithm, row.lossy, *row.tolerance), std::tuple("peer.f", "8 bits", 0.25));
  }
}

TEST_F(InAWorker, ErrorsAreJudgedHereByTheOpsTolerance) {
  const Workload& gemm = *suite().find("gemm")->workload;
  const double allowed = gemm.tolerance(gemm.parse("m=4,n=4,k=4"), DType::fp32).max_error;
  const auto answer = [&](double error, double roundings) {
    return nlohmann::json{{"errors", {{{"max", error}, {"l2", 0.0}}}}, {"roundings", roundings}}.dump();
  };
  start("ready", answer(0.99 * allowed, 1));
  EXPECT_EQ(run().row.status, Outcome::ok);
  start("ready", answer(1.01 * allowed, 1));
  EXPECT_EQ(run().row.status, Outcome::incorrect);
  start("ready", answer(2.49 * allowed, 2));  // a second rounding: 1 + 1.5 times as much
  EXPECT_EQ(run().row.status, Outcome::ok);
  start("ready", answer(2.51 * allowed, 2));
  const CaseResult wrong = run();
  EXPECT_EQ(wrong.row.status, Outcome::incorrect);
  EXPECT_TRUE(wrong.row.reason.starts_with("output 0: error")) << wrong.row.reason;
  EXPECT_EQ(asked().find("cold", asked().rfind("ready")), std::string::npos) << "what is wrong is not timed";
}

TEST_F(InAWorker, WhatTheTimedLaunchesLeftIsJudged) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"cold", "stale", "after the cold launches: output 0: error nan"},
      {"warm", "stale", "after the warm launches: output 0: error nan"},
      {"judge", R"({"errors": [{"max": 9, "l2": 0}]})", "after the cold launches: output 0: error 9"}};
  for (const auto& [question, behaviour, reason] : cases) {
    start(question, behaviour);
    const CaseResult result = run();
    EXPECT_TRUE(result.row.reason.starts_with(reason)) << result.row.reason;
    expect(result, Outcome::incorrect, result.row.reason);
  }
}

TEST_F(InAWorker, WhatIsNotANumberIsWrong) {
  start("ready", R"({"errors": [{"max": 0, "l2": 0}, {"max": null, "l2": 0}]})");
  expect(run(), Outcome::incorrect, "output 1: error nan, allowed " + fmt::format("{:.3g}", run().verdict.tolerance));
  start("ready", R"({"errors": []})");
  expect(run(), Outcome::incorrect, "its outputs were not judged");
  start("ready", R"({"errors": [{"max": 0, "l2": 0}], "wrong": "2 outputs instead of 1"})");
  expect(run(), Outcome::incorrect, "2 outputs instead of 1");
}

TEST_F(InAWorker, APluginIsAskedForAReplayBehindTheLastBlockOfAPair) {
  start();
  const Case eager = gemm_case(stub());
  for (const char* late : {"", R"({"judged": "one launch", "wrong": "late"})"}) {
    const auto process = std::make_shared<Worker>(
        "the plugin", ChildCommand{{"python3", "tests/bench/measure/stub_worker.py", *late ? "replay" : "", late},
                                   {{"STUB_LOG", log() + "_of_plugin"}}});
    Case plugin = eager;
    plugin.implementation = implementation_of_plugin(process, "mine.so", "mine", Kind::host, Arch::host);
    EXPECT_EQ(CaseRunner(*platform, nullptr, options).run_pair(eager, plugin).wrong,
              *late ? "theirs after the last block: late" : "");
  }
  EXPECT_EQ(asked().find("replay"), std::string::npos) << "of PyTorch's nothing is asked";
}

TEST_F(InAWorker, RandomResultsAreJudgedThereAndHaveNoError) {
  start("ready", R"({"judged": "by its noise"})");
  const CaseResult result = run();
  EXPECT_EQ(result.row.status, Outcome::ok);
  EXPECT_EQ(result.row.reason, "by its noise");
  EXPECT_FALSE(result.row.max_rel_error.has_value());
}

TEST_F(InAWorker, RefusalsBecomeTheirOutcome) {
  for (const Outcome outcome :
       {Outcome::unsupported_problem, Outcome::not_built, Outcome::out_of_memory, Outcome::cuda_error}) {
    start("ready", nlohmann::json{{"failed", to_string(outcome)}, {"reason", "why not"}}.dump());
    expect(run(), outcome, "why not");
    EXPECT_TRUE(worker->running());
  }
  start("warm", R"({"failed": "cuda_error", "reason": "an illegal memory access", "lost": true})");
  expect(run(), Outcome::cuda_error, "an illegal memory access");
  EXPECT_FALSE(worker->running()) << "its device is gone: the next case gets another";
}

TEST_F(InAWorker, ADeadOneIsARowAndTheNextCaseGetsAnother) {
  for (const char* question : {"ready", "cold", "warm", "judge"}) {
    SCOPED_TRACE(question);
    start(question, "die");
    expect(run(), Outcome::cuda_error, "the stub ended with exit code 7: last words");
    EXPECT_FALSE(worker->running());
    expect(run("m=8,n=4,k=4"), Outcome::cuda_error, "the stub ended with exit code 7: last words");
    EXPECT_NE(asked().find("m=8,n=4,k=4"), std::string::npos);
  }
  start("cold", "kill");
  expect(run(), Outcome::cuda_error, "the stub was killed by signal 9 (Killed)");
}

TEST_F(InAWorker, AHungOneIsEndedWithItsChildren) {
  start("warm", "hang", {120, 120, 0.2});
  expect(run(), Outcome::cuda_error, "the stub gave no answer within 0.2 s");
  EXPECT_FALSE(worker->running());
  start("ready", "loop", {120, 0.2, 120});
  expect(run(), Outcome::cuda_error, "the stub gave no answer within 0.2 s");
  const std::string log = asked();
  const int child = std::stoi(log.substr(log.rfind("child ") + 6));
  EXPECT_TRUE(gone(child)) << "its child is there";
}

TEST_F(InAWorker, AUserReadsForWhatItIsWaited) {
  start("ready", "hang", {.ready_seconds = 1.5, .silent_seconds = 0.1});
  testing::internal::CaptureStderr();
  expect(run(), Outcome::cuda_error, "the stub gave no answer within 1.5 s");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the stub: no answer for 1s, of 2s that it has\n"), std::string::npos) << said;
}

TEST_F(InAWorker, OneWhoseChildHoldsItsOutputIsDeadAllTheSame) {
  start("cold", "orphan");
  expect(run(), Outcome::cuda_error, "the stub ended with exit code 7");
}

TEST_F(InAWorker, WhatItSaysOfItselfIsBounded) {
  const char* const kRoundings = R"({{"errors": [{{"max": 0, "l2": 0}}], "roundings": {}}})";
  for (const char* roundings : {"0.5", "1e9", "-1"}) {
    start("ready", fmt::format(fmt::runtime(kRoundings), roundings));
    const CaseResult result = run();
    EXPECT_EQ(result.row.status, Outcome::cuda_error);
    EXPECT_NE(result.row.reason.find("roundings, not 1 to 100"), std::string::npos) << result.row.reason;
  }
  start("ready", R"({"errors": [{"max": -1, "l2": 0}]})");
  expect(run(), Outcome::incorrect, "output 0: errors below 0");
}

TEST_F(InAWorker, BabbleIsNotAnAnswer) {
  const std::string unclear = "gave an answer that cannot be understood";
  const std::tuple<const char*, const char*, std::string> cases[] = {
      {"cold", "garbage", "answered 'gar\tbage', which is not a JSON object"},
      {"cold", R"({"number": 1, "us": [5]})", "answered another question"},
      {"cold", R"({"us": [5, 5, 5]})", "gave 3 times instead of 1"},
      {"cold", R"({"us": []})", "gave 0 times"},
      {"cold", R"({"us": [-1]})", "gave a time of -1"},
      {"cold", R"({"us": [0]})", "gave a time of 0"},
      {"cold", "{}", unclear},
      {"cold", R"({"us": "five"})", unclear},
      {"cold", R"({"failed": 3})", unclear},
      {"cold", R"({"failed": "ok"})", unclear},
      {"ready", R"({"errors": [{"max": 0}]})", unclear}};
  for (const auto& [question, answer, words] : cases) {
    start(question, answer);
    const CaseResult result = run();
    EXPECT_TRUE(result.row.reason.starts_with("the stub " + words)) << result.row.reason;
    expect(result, Outcome::cuda_error, result.row.reason);
    EXPECT_FALSE(worker->running());
  }
}

TEST_F(InAWorker, OneThatCannotStartSaysWhy) {
  const auto why = [](Worker& one) { return refusal_of<WorkerGone>([&] { return one.facts(); }); };
  start("start", "die");
  EXPECT_EQ(why(*worker), "the stub cannot be started: ended with exit code 7: last words");
  expect(run(), Outcome::cuda_error, "the stub cannot be started: ended with exit code 7: last words");
  expect(run(), Outcome::not_built, "the stub cannot be started: ended with exit code 7: last words");  // no third try
  start("start", R"({"failed": "not_built", "reason": "no library"})");
  EXPECT_EQ(why(*worker), "the stub cannot be started: no library");
  start("start", "hang", {0.2, 120, 120});
  EXPECT_EQ(why(*worker), "the stub cannot be started: gave no answer within 0.2 s");
  Worker missing("the stub", {{"/nowhere/python"}});
  EXPECT_EQ(why(missing), "the stub cannot be started: ended with exit code 127: the program cannot be run");
}

TEST_F(InAWorker, WithoutOneItsCasesAreNotBuilt) {
  expect(run(), Outcome::not_built, "it is in another program, which was not started");
}

TEST_F(InAWorker, NothingElseLaunchesItsRows) {
  const ImplementationPtr torch = suite().find("gemm")->find("torch_eager");
  ASSERT_NE(torch, nullptr);
  KnownTimes nothing;
  EXPECT_THROW(torch->make(*platform, suite().find("gemm")->workload->parse("m=1,n=1,k=1"), DType::fp32, nothing),
               LibraryRefused);
}

}  // namespace
}  // namespace noisefloor
