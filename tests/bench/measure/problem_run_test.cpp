// A problem as a whole: all cases timed, then counted, then the best two compared. By scripted times, and a count of
// the test's own.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "bench/measure/case_runner.h"
#include "tests/support/host_platforms.h"
#include "tests/support/scripted_library.h"

namespace noisefloor {
namespace {

constexpr std::size_t kMemory = 1 << 26;  // far above the tensors with their guards

// Whose memory is all there is, so that half of it may be free.
class SmallPlatform final : public Limited<ScriptedPlatform> {
 public:
  SmallPlatform() : Limited(kMemory) { description_.memory_bytes = kMemory; }
  void synchronize() override {
    if (lost) throw DeviceError("it does not answer", true);
    Limited::synchronize();
  }
  bool lost = false;
};

class ProblemRun : public testing::Test {
 protected:
  SmallPlatform platform;
  RunnerOptions options;
  const Ceilings* ceilings = nullptr;
  std::vector<Case> cases;
  std::map<CaseId, SweepRow> there;
  std::map<CaseId, EarlierRow> earlier;  // of all runs so far, the latest
  std::string steps;  // the variants, in small letters where their first launch is, in capitals where they are counted

  ProblemRun() {
    options.compare = false;
    options.count_one = [this](const Case&, BoundCase& bound, SweepRow& row) {
      steps += static_cast<char>(std::toupper(row.variant.front()));
      EXPECT_EQ(bound.fixture().inputs(), 0u) << "as a cold launch";
      row.counter_status = "ok";
    };
  }
  AnyVariant variant(const std::string& name, double us, std::size_t workspace = kMemory / 100) {
    AnyVariant variant = platform.taking(us, host_gemm());
    variant.name = name;
    variant.workspace_bytes = [workspace](const AnyProblem&, DType, const DeviceInfo&) { return workspace; };
    variant.launch = [this, name, first = true, launch = variant.launch](const auto&... given) mutable {
      if (first) steps += name;
      first = false;
      return launch(given...);
    };
    return variant;
  }
  void add(const AnyVariant& one, Kind kind = Kind::host) { cases.push_back(gemm_case(made_as(one, one.name, kind))); }
  // By variant; those with a row are there in the next run.
  std::map<std::string, SweepRow> run(bool lost = false) {
    CaseRunner runner(platform, ceilings, options);
    const ProblemResult result = runner.run_problem(cases, there);
    EXPECT_EQ(result.device_lost, lost);
    std::map<std::string, SweepRow> rows;
    for (const CaseResult& one : result.cases) {
      rows[one.row.variant] = one.row;
      there[one.row] = one.row;
      earlier[one.row] = {one.row, one.samples};
      EXPECT_EQ(one.row.status == Outcome::ok, one.row.time_cold_us.has_value());
    }
    return rows;
  }
};

TEST_F(ProblemRun, CountsWhenAllAreTimed) {
  add(variant("a", 5)), add(variant("b", 4));
  const auto rows = run();
  EXPECT_EQ(steps, "abAB");
  EXPECT_EQ(rows.at("a").time_cold_us, 5);
  EXPECT_EQ(rows.at("b").counter_status, "ok");
  EXPECT_TRUE(rows.at("b").spent_s.has_value());
  EXPECT_EQ(platform.free_bytes(), kMemory) << "nothing outlives the runner";
}

TEST_F(ProblemRun, KeepsNoMoreThanHalfOfTheMemory) {
  add(variant("a", 4, kMemory / 10)), add(variant("b", 5, 6 * kMemory / 10)), add(variant("c", 6, 95 * kMemory / 100)),
      add(variant("d", 6, 2 * kMemory));
  const auto rows = run();
  EXPECT_EQ(steps, "abcABC") << "made ready anew, c in the room that a had kept";
  EXPECT_EQ(rows.at("c").status, Outcome::ok) << rows.at("c").reason;
  EXPECT_EQ(rows.at("d").status, Outcome::out_of_memory);
}

TEST_F(ProblemRun, OneThatFailsLeavesTheOthersTheirCounters) {
  add(variant("a", 4));
  add(launched_by(variant("b", 5), [](auto&&...) -> Status { throw DeviceError("no", false); }));
  add(variant("c", 5));
  const auto rows = run();
  EXPECT_EQ(rows.at("b").status, Outcome::cuda_error);
  EXPECT_EQ(rows.at("a").counter_status, "ok");
  EXPECT_EQ(rows.at("c").counter_status, "ok");
}

TEST_F(ProblemRun, CountingIsPartOfWhatARowCosts) {
  add(variant("a", 4));
  constexpr std::chrono::milliseconds kCounted{200};
  options.count_one = [&](const Case&, BoundCase&, SweepRow&) { std::this_thread::sleep_for(kCounted); };
  EXPECT_GE(run().at("a").spent_s.value_or(0), 0.2);
}

TEST_F(ProblemRun, OneThatFailsWhenItIsCountedHasNoTimes) {
  add(variant("a", 4)), add(variant("b", 5));
  options.count_one = [this](const Case&, BoundCase&, SweepRow& row) {
    row.counter_status = "ok";
    if (row.variant == "a") throw DeviceError("no", platform.lost);
  };
  auto rows = run();
  EXPECT_EQ(rows.at("a").status, Outcome::cuda_error);
  EXPECT_EQ(rows.at("b").counter_status, "ok");

  options.count_one = [this](const Case&, BoundCase&, SweepRow& row) {
    platform.lost = row.variant == "b";
    if (platform.lost) throw DeviceError("no", true);
  };
  there.clear();
  rows = run(/*lost=*/true);
  ASSERT_EQ(rows.size(), 1u) << "the others are measured whole by the next process";
  EXPECT_EQ(rows.at("b").status, Outcome::cuda_error);
}

TEST_F(ProblemRun, TheBestTwoAreCompared) {
  options.compare = true;
  add(variant("a", 9)), add(variant("b", 6)), add(variant("x", 12), Kind::baseline);
  auto rows = run();
  EXPECT_EQ(rows.at("a").paired_with, "");
  EXPECT_EQ(rows.at("b").paired_with, "x");
  EXPECT_EQ(rows.at("x").paired_with, "b");
  EXPECT_NEAR(rows.at("b").speedup_warm.value(), 2, 1e-6);
  EXPECT_NEAR(rows.at("x").speedup_cold.value(), 0.5, 1e-6);

  add(variant("c", 3));
  rows = run();
  EXPECT_EQ(rows.size(), 1u) << "a row is written once";
  EXPECT_NEAR(rows.at("c").speedup_warm.value(), 4, 1e-6);
  add(variant("d", 8));
  EXPECT_EQ(run().at("d").paired_with, "") << "the best two have met";
}

TEST_F(ProblemRun, AComparisonWithAWrongResultIsNone) {
  options.compare = true;
  bool wrong = false;
  add(followed_by(variant("a", 9), [&](auto pointers) {
    if (wrong) store_element(DType::fp32, pointers.back(), 0, 1e3);
  }));
  add(variant("x", 12), Kind::baseline);
  options.count_one = [&](const Case&, BoundCase&, SweepRow&) { wrong = true; };
  CaseRunner runner(platform, nullptr, options);
  const ProblemResult result = runner.run_problem(cases, there);
  EXPECT_EQ(result.wrong_comparisons, 1);
  for (const CaseResult& one : result.cases) EXPECT_EQ(one.row.paired_with, "");
}

// A run that keeps what it can of the one before it. Rows of the host need no launch to be known by.
class Reuse : public ProblemRun {
 protected:
  // What the next run may keep is changed in `earlier`.
  std::map<std::string, SweepRow> run_again() {
    const std::map<CaseId, EarlierRow> kept = earlier;
    options.earlier = [&kept](const CaseId& id) {
      const auto found = kept.find(id);
      return found == kept.end() ? nullptr : &found->second;
    };
    there.clear();
    steps.clear();
    return run();
  }
  SweepRow& row(const char* variant) {
    return std::ranges::find_if(earlier, [&](const auto& one) { return one.first.variant == variant; })->second.row;
  }
};

TEST_F(Reuse, KeepsWhatRunsTheSameAndMeasuresTheRest) {
  add(variant("a", 5)), add(variant("b", 4));
  run();
  row("a").commit = "older";
  row("b").signature = "of other code";
  const auto rows = run_again();
  EXPECT_EQ(steps, "B");
  EXPECT_EQ(rows.at("a").time_cold_us, 5);
  EXPECT_EQ(rows.at("a").commit, "older");
  EXPECT_FALSE(rows.at("a").measured_utc.empty());
  EXPECT_NE(rows.at("b").commit, "older");
  EXPECT_NE(rows.at("b").signature, "of other code");
}

TEST_F(Reuse, WhereOnlyTheReferenceDiffersItIsVerifiedAndNotTimed) {
  bool wrong = false;
  int launches = 0;
  add(followed_by(variant("a", 5), [&](auto pointers) {
    ++launches;
    if (wrong) store_element(DType::fp32, pointers.back(), 0, 1e3);
  }));
  run();
  launches = 0;
  (void)run_again();
  EXPECT_EQ(launches, 0);
  const std::string now = row("a").verification;
  row("a").verification = "of another reference";
  platform.cold_calls.clear();
  EXPECT_EQ(run_again().at("a").verification, now);
  EXPECT_GT(launches, 0);
  EXPECT_TRUE(platform.cold_calls.empty());

  row("a").verification = "of another reference";
  wrong = true;
  EXPECT_EQ(run_again().at("a").status, Outcome::incorrect);
}

TEST_F(Reuse, APhaseWithANewVersionIsTakenAgainAndNoOther) {
  double us = 5;
  add(followed_by(variant("a", 0), [&](auto) { platform.clock_us += us; }));
  run();
  us = 7;
  options.phases[1].second = 2;  // warm
  ASSERT_EQ(options.phases[1].first, "warm");
  const auto again = run_again().at("a");
  EXPECT_EQ(again.time_cold_us, 5);
  EXPECT_EQ(again.time_warm_us, 7);
  EXPECT_EQ(steps, "") << "counted before";

  us = 9;
  EXPECT_EQ(run_again().at("a").time_warm_us, 7) << "it has the new one";
  row("a").phases = "cold=1;warm=2";
  (void)run_again();
  EXPECT_EQ(steps, "A") << "counters that it lacked";
}

TEST_F(Reuse, APhaseThatIsDisturbedCostsNoOtherAndIsTakenByTheNextRun) {
  double us = 5;
  bool hot = false;
  add(followed_by(variant("a", 0), [&](auto) {
    if (hot) throw Throttled("too hot");
    platform.clock_us += us;
  }));
  run();
  options.phases[1].second = 2;  // warm
  us = 7, hot = true;
  const auto kept = run_again().at("a");
  EXPECT_EQ(kept.status, Outcome::ok) << kept.reason;
  EXPECT_EQ(kept.time_cold_us, 5);
  EXPECT_EQ(kept.time_warm_us, 5);
  hot = false;
  EXPECT_EQ(run_again().at("a").time_warm_us, 7);
}

TEST_F(Reuse, WhereACaseRaisesTheCeilingsAllOfItsProblemArePlacedBelowThem) {
  Ceilings low = low_ceilings();
  ceilings = &low;
  options.raise_ceilings = [&] {
    for (Ceiling& ceiling : low.rows) ceiling.value *= 1e6;
  };
  add(variant("a", 5));
  run();
  add(variant("b", 1e-7));
  const double before = row("a").pct_of_roof.value();
  EXPECT_NEAR(run_again().at("a").pct_of_roof.value() / before, 1e-6, 1e-9);
}

TEST_F(Reuse, APhaseThatARowLacksIsTakenAloneAndOnlyOfNetworksAsBuilt) {
  add(variant("a", 5)), add(variant("b", 5)), add(variant("x", 6), Kind::baseline);
  cases[1].weights = 0;
  for (const auto& [name, one] : run()) {
    EXPECT_FALSE(one.time_weights_cold_us);
    EXPECT_EQ(one.phases.find("weights") != std::string::npos, name == "b") << "it has none, and is done with them";
  }
  cases[0].weights = cases[2].weights = 2;
  platform.cold_calls.clear();
  const auto rows = run_again();
  EXPECT_TRUE(platform.cold_calls.empty());
  EXPECT_EQ(rows.at("a").time_weights_cold_us, 5);
  EXPECT_EQ(rows.at("x").time_weights_cold_us, 6);
  platform.warm_calls.clear();
  (void)run_again();
  EXPECT_TRUE(platform.warm_calls.empty()) << "they have them now";
}

TEST_F(Reuse, AComparisonIsNeverOfTwoDates) {
  options.compare = true;
  add(variant("a", 6)), add(variant("x", 12), Kind::baseline);
  run();
  (void)run_again();
  EXPECT_EQ(steps, "") << "of two that are kept it stands";
  EXPECT_NEAR(row("a").speedup_warm.value(), 2, 1e-6);

  row("x").signature = "of another version";
  row("a").speedup_warm = row("x").speedup_warm = 5;
  const auto rows = run_again();
  EXPECT_EQ(rows.at("a").commit, row("a").commit);
  EXPECT_NEAR(rows.at("a").speedup_warm.value(), 2, 1e-6) << "its times are kept, and the comparison is new";
  EXPECT_NEAR(rows.at("x").speedup_warm.value(), 0.5, 1e-6);

  options.compare = false;
  row("x").signature = "of another version";
  EXPECT_EQ(run_again().at("a").paired_with, "");
}

}  // namespace
}  // namespace noisefloor
