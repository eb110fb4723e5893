// The gate's two phases, and how far processes lie apart: assumed, kept beside a baseline, measured from more runs.
#include <gtest/gtest.h>

#include <cmath>

#include "reports/gate/gate_report.h"
#include "reports/gate/spread.h"
#include "tests/support/gate_runs.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

// A baseline beside whose folder a table says how far its processes lie apart, the same for all lengths.
class GateWithSpread : public testing::Test {
 protected:
  void keep(double warm, double cold, const std::string& device = "Test GPU") {
    Spread spread;
    spread.device = device;
    spread.sweeps = {"abc 2026-01-01T00:00:00Z"};
    for (const double from : class_edges())
      for (const Phase phase : {Phase::warm, Phase::cold})
        spread.classes.push_back({phase, from, 100, 0, phase == Phase::warm ? warm : cold, 0});
    write_atomically(folder_ / kSpreadFile, to_json(spread));
  }
  RunFiles beside_it(RunFiles run) {
    run.folder = folder_.path();
    return run;
  }
  TemporaryFolder folder_;
};

TEST_F(GateWithSpread, NeedsItsShareAndColdHalfAMicrosecond) {
  keep(0.001, 0.001);
  const auto verdict = [&](double cold_us, double warm_us, double cold_change, double warm_change) {
    Rows exact = rows_of(1, cold_us, 0);
    exact[0].warm_us = warm_us, exact[0].batch = 0;
    Rows other = exact;
    other[0].us *= 1 + cold_change, *other[0].warm_us *= 1 + warm_change;
    return judged(beside_it(synthetic_run(exact, 1)), synthetic_run(other, 2)).rows.at(0).verdict;
  };
  for (const double us : {50.0, 3000.0}) {
    EXPECT_EQ(verdict(us, us, 0.014, 0.014), GateVerdict::pass);
    EXPECT_EQ(verdict(us, us, 0.016, 0.014), GateVerdict::regressed);
    EXPECT_EQ(verdict(us, us, 0.014, 0.016), GateVerdict::regressed);
    EXPECT_EQ(verdict(us, us, -0.05, 0.016), GateVerdict::regressed) << "either phase, whatever the other gains";
    EXPECT_EQ(verdict(us, us, 1 / 1.016 - 1, 0), GateVerdict::improved);
    EXPECT_EQ(verdict(us, us, 0, 1 / 1.016 - 1), GateVerdict::improved);
    EXPECT_EQ(verdict(us, us, 1 / 1.014 - 1, 0), GateVerdict::pass);
  }
  EXPECT_EQ(verdict(4, 3, 0.11, 0), GateVerdict::pass) << "below what the timer resolves";
  EXPECT_EQ(verdict(4, 3, 0.15, 0), GateVerdict::regressed);
  EXPECT_EQ(verdict(4, 3, 0, 0.02), GateVerdict::regressed) << "0.06 us, but twenty launches in one interval";
}

TEST_F(GateWithSpread, GoesByTwiceTheSpreadOfThePhase) {
  keep(0.01, 0.05);
  const auto row = [&](double cold_change, double warm_change) {
    Rows before = rows_of(1, 100, 1e-4);
    before[0].warm_us = 80, before[0].batch = 0;
    Rows after = before;
    after[0].us *= 1 + cold_change, *after[0].warm_us *= 1 + warm_change;
    // What a row points at is gone by then; its verdicts stay.
    return judged(beside_it(synthetic_run(before, 1)), synthetic_run(after, 2)).rows.at(0);
  };
  EXPECT_EQ(row(0, 0.021).verdict, GateVerdict::regressed);
  EXPECT_EQ(row(0, 0.021).by, std::vector<Phase>{Phase::warm});
  EXPECT_EQ(row(0, 0.019).verdict, GateVerdict::ambiguous);
  EXPECT_TRUE(row(0, 0.019).reason.starts_with("within the noise of 2.0 %"));
  EXPECT_EQ(row(0.11, 0).verdict, GateVerdict::regressed);
  EXPECT_EQ(row(0.11, 0).by, std::vector<Phase>{Phase::cold});
  EXPECT_EQ(row(0.09, 0).verdict, GateVerdict::pass) << "processes differ so, and warm times say that nothing did";
  EXPECT_EQ(row(0.09, 0.019).verdict, GateVerdict::ambiguous) << "warm times do not say so";
  EXPECT_EQ(row(0.09, 0.03).verdict, GateVerdict::regressed);
  EXPECT_EQ(row(-0.09, -0.03).verdict, GateVerdict::improved);
  EXPECT_EQ(row(0.09, -0.03).verdict, GateVerdict::ambiguous) << "slower cold, perhaps";
  const GateRow both = row(0.12, 0.03);
  EXPECT_EQ(both.by, (std::vector<Phase>{Phase::warm, Phase::cold}));
  EXPECT_NEAR(both.slowdown(), 0.12, 0.001);
}

TEST_F(GateWithSpread, RefusesATableOfAnotherDeviceAndSaysWhatItIsFrom) {
  keep(0.001, 0.001);
  RunFiles a = beside_it(synthetic_run(rows_of(1, 100), 1)), b = synthetic_run(rows_of(1, 100), 2);
  GateResult result = judged(a, b);
  EXPECT_NE(result.spread.find("gate_noise.json, from 1 runs"), std::string::npos) << result.spread;
  EXPECT_TRUE(result.differences.empty());
  b.environment.time_utc = "2026-01-01T00:00:00Z";
  EXPECT_NE(terminal_text(text_of(judged(a, b))).find("synthetic is one of the runs that the spread is from"),
            std::string::npos);
  keep(0.001, 0.001, "Another GPU");
  EXPECT_NE(refusal(a, b).find("is of 'Another GPU', the runs of 'Test GPU'"), std::string::npos);
  for (const char* bad : {"{}", "[]", R"({"device":"Test GPU","sweeps":[],"classes":[{"phase":"hot"}],"rows":[]})",
                          R"({"device":"Test GPU","sweeps":[],"classes":[{"phase":"cold","from_us":-1}],"rows":[]})"}) {
    write_atomically(folder_ / kSpreadFile, bad);
    EXPECT_NE(refusal(a, b).find(kSpreadFile), std::string::npos) << bad;
  }
}

// What an edge takes is a state of the process (docs/experiments/measuring/2026-11-25-edges-of-two-levels.md).
TEST(Gate, HoldsWarmTimesAgainstEachOtherAtTheSameEdges) {
  const auto verdict = [](double slower, std::optional<long> edges, double edge_us) {
    Rows before(1), after(1);
    for (Rows* rows : {&before, &after}) (*rows)[0].us = 8, (*rows)[0].edge_us = 0.85, (*rows)[0].edges = edges;
    before[0].warm_us = 4;
    after[0].warm_us = 4 * (1 + slower) + static_cast<double>(edges.value_or(1)) * (edge_us - 0.85);
    after[0].edge_us = edge_us;
    const RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
    const GateResult forward = judged(a, b), backward = judged(b, a);
    EXPECT_EQ(forward.rows.at(0).change.warm->b_us, *b.rows[0].time_warm_serial_us) << "as measured";
    EXPECT_NEAR(forward.rows[0].change.warm->change, 1 / (1 + backward.rows.at(0).change.warm->change) - 1, 1e-9);
    return forward.rows.at(0).verdict;
  };
  EXPECT_EQ(verdict(0, 1, 1.025), GateVerdict::pass);
  EXPECT_EQ(verdict(0, 3, 1.025), GateVerdict::pass);
  EXPECT_EQ(verdict(0.08, 1, 1.025), GateVerdict::regressed);
  EXPECT_EQ(verdict(0.08, 1, 0.85), GateVerdict::regressed);
  EXPECT_NE(verdict(0, std::nullopt, 1.025), GateVerdict::pass) << "how many edges is not known";
  EXPECT_NE(verdict(0, 30, 1.025), GateVerdict::pass) << "most of a launch is no edge";
}

TEST(Gate, IsInDoubtWhereEdgesHaveTwoLevels) {
  const auto verdict = [](std::optional<double> edge_us, std::optional<long> edges) {
    Rows before(1), after(1);
    for (Rows* rows : {&before, &after}) (*rows)[0].us = 8, (*rows)[0].warm_us = 4, (*rows)[0].edge_us = 0.85;
    before[0].edges = 1;
    after[0].warm_us = 4.4;
    after[0].edge_us = edge_us;
    after[0].edges = edges;
    return judged(synthetic_run(before, 1), synthetic_run(after, 2)).rows.at(0).verdict;
  };
  EXPECT_EQ(verdict(0.85, 1), GateVerdict::regressed);
  EXPECT_EQ(verdict(std::nullopt, 1), GateVerdict::ambiguous);
  EXPECT_EQ(verdict(std::nullopt, std::nullopt), GateVerdict::regressed) << "from before edges were looked at";
  EXPECT_EQ(verdict(std::nullopt, 0), GateVerdict::regressed) << "a launch without ordinary edges";
}

// A launch's edges move it by no more than what lies between the levels, edge for edge.
TEST(Gate, DoubtsOnlyWhatEdgesOfTwoLevelsCouldBe) {
  const auto judged_as = [](double us, double slower, long edges, std::vector<double> edge_us) {
    Rows before(1), after(1);
    for (Rows* rows : {&before, &after}) (*rows)[0].us = 2 * us, (*rows)[0].edges = edges;
    before[0].warm_us = us, before[0].edge_us = 0.82;
    after[0].warm_us = us * (1 + slower);
    RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
    for (auto& [id, samples] : a.samples) samples.warm_edge_us = {0.82, 0.82};
    for (auto& [id, samples] : b.samples) samples.warm_edge_us = edge_us;
    const GateResult forward = judged(a, b), backward = judged(b, a);
    EXPECT_EQ(forward.rows.at(0).verdict == GateVerdict::regressed,
              backward.rows.at(0).verdict == GateVerdict::improved);
    return forward.rows.at(0).verdict;
  };
  const std::vector<double> kTwoLevels{0.82, 0.82, 1.0, 1.0};
  EXPECT_EQ(judged_as(50, 0.05, 1, kTwoLevels), GateVerdict::regressed) << "2.5 us, of which 0.18 may be the edge";
  EXPECT_EQ(judged_as(50, 0.0175, 1, kTwoLevels), GateVerdict::ambiguous) << "without 0.18 us it is below 1.5 %";
  EXPECT_EQ(judged_as(50, 0.05, 20, kTwoLevels), GateVerdict::ambiguous) << "3.6 us may be edges";
  EXPECT_EQ(judged_as(4, 0.05, 1, kTwoLevels), GateVerdict::ambiguous);
  EXPECT_EQ(judged_as(50, 0.05, 1, {}), GateVerdict::ambiguous) << "nobody knows how far the levels are apart";
}

TEST(Gate, DoubtsEdgesWhoseLevelsAreHalfKnown) {
  const auto judged_as = [](std::vector<double> edges_a, std::optional<double> edge_a, std::vector<double> edges_b,
                            double b_mhz) {
    Rows before(1), after(1);
    for (Rows* rows : {&before, &after}) (*rows)[0].us = 100, (*rows)[0].edges = 1;
    before[0].warm_us = 20, before[0].edge_us = edge_a;
    after[0].warm_us = 20 * 1.03, after[0].mhz = b_mhz;
    RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
    for (auto& [id, samples] : a.samples) samples.warm_edge_us = edges_a;
    for (auto& [id, samples] : b.samples) samples.warm_edge_us = edges_b;
    return judged(a, b).rows.at(0).change_of(Phase::warm).edge_doubt;
  };
  const std::vector<double> kHigh{1.0, 1.18};
  EXPECT_NEAR(judged_as({}, 0.82, kHigh, 1980), 0.36 / 20, 1e-3) << "a level that no sample shows";
  EXPECT_NEAR(judged_as({0.82}, 0.82, kHigh, 1980), 0.36 / 20, 1e-3);
  EXPECT_TRUE(std::isinf(judged_as({0.82}, 0.82, {0.82, 0.82}, 1980))) << "unknown, of one level";
  EXPECT_TRUE(std::isinf(judged_as({}, 0.82, {}, 1980)));
}

// Time less the doubt is visible, cycles less it are not: edges may be all of it.
TEST(Gate, TakesTheDoubtOfEdgesOffCyclesToo) {
  Rows before(1), after(1);
  for (Rows* rows : {&before, &after}) (*rows)[0].us = 100, (*rows)[0].edges = 1;
  before[0].warm_us = 50, before[0].edge_us = 0.82;
  after[0].warm_us = 50 * 1.04;  // of which 0.4 % may be the edge: 3.6 are left
  const auto verdict = [&](double mhz) {
    after[0].mhz = mhz;
    RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
    for (auto& [id, samples] : a.samples) samples.warm_edge_us = {0.82, 0.82};
    for (auto& [id, samples] : b.samples) samples.warm_edge_us = {0.82, 1.0};
    return judged(a, b).rows.at(0).verdict;
  };
  EXPECT_EQ(verdict(1980), GateVerdict::regressed);
  EXPECT_EQ(verdict(1980 * 0.978), GateVerdict::ambiguous) << "1.3 % of cycles are left";
}

TEST(Gate, AssumesASpreadWhereNoneIsMeasured) {
  const auto row = [](double cold_us, double warm_us, double cold_change, double warm_change) {
    Rows before = rows_of(1, cold_us, 1e-5);
    before[0].warm_us = warm_us, before[0].batch = 0;
    Rows after = before;
    after[0].us *= 1 + cold_change, *after[0].warm_us *= 1 + warm_change;
    return judged(synthetic_run(before, 1), synthetic_run(after, 2)).rows.at(0).verdict;
  };
  EXPECT_EQ(row(100, 80, 0.029, 0), GateVerdict::ambiguous) << "warm times would not have shown it either";
  EXPECT_EQ(row(100, 80, 0, 0.029), GateVerdict::ambiguous);
  EXPECT_EQ(row(100, 80, 0, 0.031), GateVerdict::regressed);
  EXPECT_EQ(row(4, 3, 0.35, 0), GateVerdict::pass) << "1.4 us, and processes may differ by 1.6";
  EXPECT_EQ(row(4, 3, 0.45, 0), GateVerdict::regressed);
}

TEST(Gate, AtThePowerCapCyclesAndTimeMustAgree) {
  Rows before = rows_of(1, 1000), after = rows_of(1, 1000);
  for (Rows* rows : {&before, &after}) (*rows)[0].mhz = 1400;
  after[0].mhz = 1500;  // the same time, 7 % more cycles
  EXPECT_EQ(judged(synthetic_run(before, 1), synthetic_run(after, 2)).rows.at(0).verdict, GateVerdict::pass)
      << "bound by memory, perhaps";
  before[0].throttle = "sw_power_cap";
  const GateRow row = judged(synthetic_run(before, 1), synthetic_run(after, 2)).rows.at(0);
  EXPECT_EQ(row.verdict, GateVerdict::ambiguous);
  EXPECT_NE(row.reason.find("in SM cycles (noise 3.0 %), not in time, at the power cap"), std::string::npos)
      << row.reason;
  after[0].us = 1080;
  EXPECT_EQ(judged(synthetic_run(before, 1), synthetic_run(after, 2)).rows.at(0).verdict, GateVerdict::regressed);
}

TEST(Gate, AnOldFolderIsJudgedByColdTimes) {
  Rows before = rows_of(2, 100), after = before;
  for (SyntheticRow& row : before) row.serial = false;
  after[0].warm_us = 120;
  after[1].us = 110;
  const RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
  const GateResult result = judged(a, b);
  EXPECT_EQ(result.cold_alone, 2u);
  EXPECT_EQ(result.count(GateVerdict::pass), 1u) << "what it lacks is not held against it";
  EXPECT_EQ(result.count(GateVerdict::regressed), 1u);
  EXPECT_FALSE(result.rows[0].warm);
  EXPECT_NE(terminal_text(text_of(result)).find("judged by cold times alone: 2 rows"), std::string::npos);
}

TEST(Gate, StrictFailsALargeAmbiguousSlowdown) {
  const auto exit_code = [](double change, bool strict) {
    Rows before = rows_of(1, 100), after = rows_of(1, 100 * (1 + change));
    after[0].mhz = 1980 / (1 + change);  // the clock explains it
    GateOptions options;
    options.strict = strict;
    return judged(synthetic_run(before, 1), synthetic_run(after, 2), {}, options).exit_code();
  };
  EXPECT_EQ(exit_code(0.08, false), 0);
  EXPECT_EQ(exit_code(0.08, true), 1);
  EXPECT_EQ(exit_code(0.04, true), 0);
  EXPECT_EQ(exit_code(-0.08, true), 0);
}

TEST(Gate, TakesNoiseFromMoreRuns) {
  const RunFiles a = synthetic_run(rows_of(3, 100), 1), b = synthetic_run(rows_of(3, 106), 2);
  EXPECT_EQ(judged(a, b).count(GateVerdict::regressed), 3u);
  // Another run of the baseline's build came out 4 % higher: 19 in 20 such pairs lie within 4.8 %, and twice that is
  // noise.
  const std::vector<RunFiles> noise{synthetic_run(rows_of(3, 104), 3)};
  const GateResult result = judged(a, b, noise);
  EXPECT_EQ(result.count(GateVerdict::ambiguous), 3u);
  EXPECT_NEAR(result.rows.at(0).change.cold.noise, 0.095, 0.01);
  EXPECT_EQ(result.spread, "measured, of 2 runs; too few rows to measure it, so it is assumed");
  EXPECT_NE(refusal(a, b, {synthetic_run(rows_of(3, 104), 3, "other")}).find("noise is between runs of one build"),
            std::string::npos);
  EXPECT_NE(refusal(a, b, {a}).find("holds the samples of"), std::string::npos);
}

RunFiles host_run(double us, unsigned seed, std::size_t rows = 10) {
  RunFiles run = synthetic_run(rows_of(rows, us), seed, "abc", "Some CPU (2 cores)");
  for (SweepRow& row : run.rows) row.kind = "host", row.sm_clock_mhz = row.warm_clock_mhz = std::nullopt;
  for (auto& [id, samples] : run.samples) samples.cold_mhz.clear(), samples.warm_mhz.clear();
  return run;
}

// Processes differ by a fraction of the time there, and a GPU's offset says nothing of it.
TEST(Gate, AHostHasNoiseOfItsOwn) {
  const RunFiles base = host_run(5000, 1, 40);
  const GateResult close = judged(base, host_run(5000 * 1.1, 2, 40));
  EXPECT_EQ(close.count(GateVerdict::ambiguous), 40u);
  EXPECT_EQ(close.exit_code(), 0);
  EXPECT_EQ(judged(base, host_run(5000 * 1.6, 2, 40)).count(GateVerdict::regressed), 40u) << "cold";
  EXPECT_EQ(judged(host_run(20, 1), host_run(32, 2)).count(GateVerdict::regressed), 0u)
      << "12 us, and 40 % with 5 us are 13";

  RunFiles beside = host_run(5000 * 1.9, 2, 40);
  for (std::size_t i = 0; i < 21; ++i) beside.rows[i].load = 2;
  for (std::size_t i = 21; i < 40; ++i) beside.rows[i].load = 0;  // one program's pause, perhaps
  const GateResult doubted = judged(base, beside);
  EXPECT_EQ(doubted.count(GateVerdict::ambiguous), 40u);
  EXPECT_NE(doubted.rows.at(0).reason.find("measured beside other programs"), std::string::npos);

  const std::vector<RunFiles> steady{host_run(5000 * 1.002, 3, 40), host_run(5000 * 0.999, 4, 40)};
  EXPECT_EQ(judged(base, host_run(5000 * 1.1, 2, 40), steady).count(GateVerdict::regressed), 40u)
      << "a machine of its own resolves more";
  EXPECT_EQ(judged(base, beside, steady).count(GateVerdict::regressed), 40u) << "what was measured holds under load";
}

}  // namespace
}  // namespace noisefloor
