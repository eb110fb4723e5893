// How the harness chooses among a library's algorithms, on scripted times.
#include "bench/measure/tuner.h"

#include <gtest/gtest.h>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/sweep/suite.h"
#include "tests/support/scripted_library.h"

namespace noisefloor {
namespace {

constexpr const char* kTunedProblem = "m=4,n=4,k=4";

class HarnessRanking : public testing::Test {
 protected:
  const SuiteEntry& gemm = *suite().find("gemm");
  ScriptedPlatform platform;
  Fixture fixture{platform, gemm, gemm.workload->parse(kTunedProblem), DType::fp32, 1};
  Verifier verifier{fixture};
  Buffer workspace{platform, host_gemm().workspace_bytes(fixture.problem(), fixture.dtype(), {})};

  Status launch(ScriptedLibrary& library, int index) {
    return library.launch(index, fixture.problem(), fixture.dtype(), fixture.pointers(), workspace.data(),
                          platform.context());
  }
  Ranking ranked(ScriptedLibrary& library, double budget_seconds = 60) {
    return HarnessRanker(verifier, budget_seconds)
        .rank(Caches::cold, static_cast<int>(library.algorithms.size()),
              [&](int index) { return launch(library, index); });
  }
  Case case_of(ImplementationPtr implementation) {
    return {&gemm, std::move(implementation), fixture.problem(), DType::fp32, kTunedProblem};
  }
  static std::vector<int> order(const Ranking& ranking) {
    std::vector<int> indices;
    for (const Timed& timed : ranking.fastest) indices.push_back(timed.index);
    return indices;
  }
};

TEST_F(HarnessRanking, TheFastestIsFirst) {
  ScriptedLibrary library(platform, {{.us = 30}, {.us = 10}, {.us = 20}});
  const Ranking ranking = ranked(library);
  ASSERT_TRUE(ranking.status.ok());
  EXPECT_EQ(ranking.ran, 3);
  EXPECT_EQ(order(ranking), (std::vector<int>{1, 2, 0}));
  EXPECT_DOUBLE_EQ(ranking.fastest.front().microseconds, 10);
  EXPECT_EQ(platform.cold_calls, (std::vector<int>{3, 3, 3, 15, 15, 15}));
}

TEST_F(HarnessRanking, OnlyTheEightFastestAreTimedAgain) {
  std::vector<Algorithm> ten;
  for (int i = 0; i < 10; ++i) ten.push_back({.us = 100.0 - i});
  ScriptedLibrary library(platform, ten);
  const Ranking ranking = ranked(library);
  EXPECT_EQ(ranking.ran, 10);
  EXPECT_EQ(order(ranking), (std::vector<int>{9, 8, 7, 6, 5, 4, 3, 2}));
}

// One launch to try it and three samples come first; what the many samples say of a finalist counts.
TEST_F(HarnessRanking, TheFinalSamplesDecide) {
  ScriptedLibrary library(platform, {{.us = 20}, {.us = 10, .slow_from = 5}});
  EXPECT_EQ(order(ranked(library)), (std::vector<int>{0, 1}));
}

TEST_F(HarnessRanking, WhatTheLibraryRefusesIsLeftOut) {
  for (const StatusCode refusal :
       {StatusCode::unsupported_problem, StatusCode::out_of_memory, StatusCode::cuda_error}) {
    SCOPED_TRACE(to_string(refusal));
    ScriptedLibrary library(platform, {{.us = 1, .refuses_from = 0, .refusal = refusal},
                                       {.us = 1, .refuses_from = 2, .refusal = refusal},
                                       {.us = 2, .refuses_from = 6, .refusal = refusal},
                                       {.us = 10}});
    const Ranking ranking = ranked(library);
    EXPECT_TRUE(ranking.status.ok());
    EXPECT_EQ(ranking.ran, 2) << "the third gave its first samples";
    EXPECT_EQ(order(ranking), std::vector<int>{3});
    EXPECT_EQ(library.algorithms[0].launches, 1) << "it is not asked again";
  }
}

TEST_F(HarnessRanking, ALostDeviceEndsTheSearch) {
  ScriptedLibrary library(platform, {{.loses_device = true}, {.us = 10}});
  EXPECT_THROW(ranked(library), DeviceError);
  EXPECT_EQ(library.algorithms[1].launches, 0);
}

TEST_F(HarnessRanking, TheBudgetEndsTheSearchOnceOneRan) {
  ScriptedLibrary library(platform, {{.refuses_from = 0}, {.us = 10}, {.us = 1}});
  const Ranking ranking = ranked(library, /*budget_seconds=*/0);
  EXPECT_TRUE(ranking.status.ok());
  EXPECT_EQ(ranking.ran, 1);
  EXPECT_EQ(ranking.tried, 2);
  EXPECT_EQ(order(ranking), std::vector<int>{1});
  EXPECT_EQ(library.algorithms[2].launches, 0);
}

// The outputs of the launch before are no excuse: they are poisoned first, and judged behind the launch.
TEST_F(HarnessRanking, AccuracyIsOfTheLaunchItself) {
  ScriptedLibrary library(platform, {{}, {.right = false}, {.refuses_from = 0}});
  HarnessRanker ranker(verifier);
  const auto accurate = [&](int index) { return ranker.accurate([&] { return launch(library, index); }); };
  EXPECT_TRUE(accurate(0));
  EXPECT_FALSE(ranker.accurate([] { return success(); })) << "it wrote nothing";
  EXPECT_FALSE(accurate(1));
  EXPECT_FALSE(accurate(2)) << "refused";
  EXPECT_TRUE(accurate(0)) << "the wrong ones leave nothing behind";
}

TEST_F(HarnessRanking, AnInaccurateAlgorithmIsPassedOver) {
  std::vector<Algorithm> many(10, Algorithm{.us = 10, .right = false});
  many[3] = {.us = 50};
  many[7] = {.us = 40};
  ScriptedLibrary few(platform, {{.us = 30}, {.us = 10, .right = false}, {.us = 20}}), late(platform, many);
  BoundCase bound(fixture, *few.implementation(), &verifier);
  EXPECT_EQ(bound.description(), "algorithm 2; best of 3");
  EXPECT_TRUE(verifier.verify(bound).correct());
  EXPECT_EQ(BoundCase(fixture, *late.implementation(), &verifier).description(), "algorithm 7; best of 10")
      << "none of the fastest is accurate";
}

TEST_F(HarnessRanking, ColdAndWarmLaunchesEachHaveTheirFastest) {
  ScriptedLibrary library(platform, {{.us = 10, .warm_us = 9}, {.us = 20, .warm_us = 5}, {.us = 1, .right = false}});
  BoundCase bound(fixture, *library.implementation(), &verifier);
  EXPECT_EQ(bound.description(), "algorithm 0 cold, 1 warm; best of 3");
  const CaseResult result = CaseRunner(platform, nullptr, {}).run(case_of(library.implementation()));
  EXPECT_EQ(result.row.status, Outcome::ok) << result.row.reason;
  EXPECT_EQ(result.row.time_cold_us, 10);
  EXPECT_EQ(result.row.time_warm_us, 5);
  EXPECT_EQ(result.row.algorithm, "algorithm 0 cold, 1 warm; best of 3");
}

// Judged by what the warm launches left, though the launch before the timing was right.
TEST_F(HarnessRanking, AWrongWarmChoiceIsNotReported) {
  ScriptedLibrary library(platform, {{.us = 10, .warm_us = 9}, {.us = 20, .warm_us = 5}});
  const auto kept = std::make_shared<SearchCache>("", [](const std::string&) {});
  const Case one = case_of(library.implementation(kept));
  BoundCase(fixture, *one.implementation, &verifier);  // searches
  library.algorithms[1].launches = 0;
  library.algorithms[1].wrong_from = 3;  // behind the launch that judges what was kept
  const CaseResult result = CaseRunner(platform, nullptr, {}).run(one);
  EXPECT_EQ(result.row.status, Outcome::incorrect);
  EXPECT_NE(result.row.reason.find("after the warm launches"), std::string::npos) << result.row.reason;
}

TEST_F(HarnessRanking, ALibraryThatIsNeverAccurateRefuses) {
  ScriptedLibrary library(platform, {{.right = false}, {.right = false}});
  EXPECT_THROW(BoundCase(fixture, *library.implementation(), &verifier), LibraryRefused);
}

TEST_F(HarnessRanking, ALibraryThatRefusesEveryAlgorithmGivesItsRowThatReason) {
  for (const int refuses_from : {0, 1, 5}) {
    ScriptedLibrary library(platform, {{.refuses_from = refuses_from}, {.refuses_from = 0}});
    const CaseResult result = CaseRunner(platform, nullptr, {}).run(case_of(library.implementation()));
    EXPECT_EQ(result.row.status, Outcome::unsupported_problem);
    EXPECT_EQ(result.row.reason, "the library refused every algorithm that it offered");
  }
}

}  // namespace
}  // namespace noisefloor
