// The spread between processes, and the gate by it: runs of one build are silent, slowed ones are caught.
#include "reports/gate/spread.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <random>

#include "tests/support/gate_runs.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

PhaseChange change_of(double time, std::optional<double> cycles = std::nullopt, std::optional<double> mean = {}) {
  PhaseChange change;
  change.change = time;
  change.mean_change = mean.value_or(time);
  change.cycle_change = cycles;
  return change;
}

TEST(Spread, IsWhatTimeAndCyclesAgreeOn) {
  EXPECT_NEAR(agreed_change(change_of(0.04)), 0.04, 1e-12);
  EXPECT_NEAR(agreed_change(change_of(1 / 1.04 - 1)), 0.04, 1e-12) << "of the shorter time";
  EXPECT_NEAR(agreed_change(change_of(0.04, 0.01)), 0.01, 1e-12);
  EXPECT_NEAR(agreed_change(change_of(0.01, 0.04)), 0.01, 1e-12);
  EXPECT_EQ(agreed_change(change_of(0.04, -0.01)), 0);
  EXPECT_NEAR(agreed_change(change_of(0.04, {}, 0.01)), 0.01, 1e-12) << "means of batches";
  EXPECT_EQ(agreed_change(change_of(0.04, 0.03, -0.01)), 0);
}

TEST(Spread, OfKnownNumbers) {
  Rows rows(40);
  for (SyntheticRow& row : rows) row.us = 100, row.warm_us = 30, row.spread = row.batch = 0;
  Rows other = rows;
  for (SyntheticRow& row : other) row.us = 102;
  other[0].us = 112;
  const RunFiles a = synthetic_run(rows, 1), b = synthetic_run(other, 2);
  const RunFiles* const runs[] = {&a, &b};
  const Spread spread = measure_spread(runs);
  ASSERT_EQ(spread.classes.size(), 2u);
  EXPECT_EQ(spread.classes[0].phase, Phase::warm);
  EXPECT_EQ(spread.classes[0].from_us, 20);
  EXPECT_EQ(spread.classes[0].spread(), 0);
  EXPECT_EQ(spread.classes[1].from_us, 50);
  EXPECT_EQ(spread.classes[1].pairs, 40u);
  EXPECT_NEAR(spread.classes[1].rms, std::sqrt((39 * 0.02 * 0.02 + 0.12 * 0.12) / 40), 1e-12);
  EXPECT_NEAR(spread.classes[1].p99, 0.12, 1e-12) << "of 40 the largest";
  const CaseId id = a.rows[1];
  EXPECT_NEAR(spread.threshold(id, Phase::cold, 60), 0.24, 1e-12);
  EXPECT_NEAR(spread.threshold(id, Phase::cold, 10), 0.16, 1e-12) << "assumed: 1.6 us";
  EXPECT_NEAR(spread.threshold(id, Phase::warm, 300), 0.03, 1e-12) << "assumed";
}

TEST(Spread, ARowThatStandsOutHasItsOwn) {
  Rows rows(400);
  for (SyntheticRow& row : rows) row.us = 100, row.spread = row.batch = 0;
  Rows other = rows;
  for (SyntheticRow& row : other) row.us = 101;
  other[7].us = 108;
  const RunFiles a = synthetic_run(rows, 1), b = synthetic_run(other, 2);
  const RunFiles* const runs[] = {&a, &b};
  const Spread spread = measure_spread(runs);
  EXPECT_NEAR(spread.threshold(a.rows[6], Phase::cold, 100), 2 * 2.576 * std::sqrt((399e-4 + 64e-4) / 400), 1e-3);
  EXPECT_NEAR(spread.classes.at(0).typical, 0.01, 1e-6) << "the one that stands out says nothing of the others";
  EXPECT_NEAR(spread.threshold(a.rows[7], Phase::cold, 100), 4 * std::sqrt((64e-4 + 2 * 1e-4) / 3), 1e-3);
  EXPECT_NE(spread_text(spread).find("cold gemm/m=8,n=64,k=64/bf16/ptx: 8.00 % rms of 2 runs"), std::string::npos);
}

// Warm, of four runs or more, a row is held to what it does itself and not to the worst of its class.
TEST(Spread, ARowThatIsSteadyIsHeldToThat) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<RunFiles> runs;
  for (unsigned seed = 0; seed < 7; ++seed) {
    Rows rows(40);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].us = 102 * (1 + 0.001 * normal(random)), rows[i].spread = rows[i].batch = 0;
      rows[i].warm_us = 100 * (1 + (i < 4 ? 0.02 : 0.001) * normal(random));
    }
    runs.push_back(synthetic_run(rows, seed));
  }
  std::vector<const RunFiles*> all;
  for (const RunFiles& run : runs) all.push_back(&run);
  const Spread spread = measure_spread(all), of_three = measure_spread(std::span(all).first(3));
  const auto threshold = [&](const Spread& of, std::size_t row) {
    return of.threshold(runs[0].rows[row], Phase::warm, 100);
  };
  EXPECT_LT(threshold(spread, 20), 0.01);
  EXPECT_GT(threshold(spread, 2), 0.05);
  EXPECT_GT(threshold(of_three, 20), 0.05) << "three runs do not say what a row does";
  EXPECT_GT(spread.threshold(CaseId::parse("gemm/m=9,n=9,k=9/bf16/ptx"), Phase::warm, 100), 0.05) << "an unknown row";
}

TEST(Spread, OfAnOlderFileATypicalRowIsItsClass) {
  const TemporaryFolder folder;
  Spread spread;
  spread.classes.push_back({Phase::warm, 20, 40, 0.03, 0.05, 0.01});
  std::string text = to_json(spread);
  const std::size_t place = text.find(",\n   \"typical\"");
  ASSERT_NE(place, std::string::npos) << text;
  text.erase(place, text.find('}', place) - place);
  write_atomically(folder / kSpreadFile, text);
  EXPECT_EQ(read_spread(folder / kSpreadFile).classes.at(0).typical, 0.03);
}

TEST(Spread, IsKeptWhole) {
  EXPECT_TRUE(rc::check("what is written is read", [] {
    const TemporaryFolder folder;
    Spread spread;
    spread.device = "Test GPU";
    spread.sweeps = {"abc 2026-01-01T00:00:00Z", "abc 2026-01-02T00:00:00Z"};
    for (const double from : class_edges())
      if (*rc::gen::arbitrary<bool>())
        spread.classes.push_back({Phase::warm, from, *rc::gen::inRange<std::size_t>(30, 9999),
                                  *rc::gen::inRange(0, 999) / 7e4, *rc::gen::inRange(0, 999) / 3e4,
                                  *rc::gen::inRange(0, 999) / 8e4});
    if (*rc::gen::arbitrary<bool>())
      spread.rows[{*rc::gen::element(Phase::cold, Phase::warm), CaseId::parse("gemm/m=1,n=2,k=3/bf16/ptx")}] = {
          *rc::gen::inRange<std::size_t>(2, 9), 0.125};
    write_atomically(folder / kSpreadFile, to_json(spread));
    const Spread read = read_spread(folder / kSpreadFile);
    RC_ASSERT(to_json(read) == to_json(spread));
    const CaseId id = CaseId::parse("gemm/m=1,n=2,k=3/bf16/ptx");
    for (const double us : {1.0, 15.0, 5000.0})
      for (const Phase phase : {Phase::warm, Phase::cold})
        RC_ASSERT(read.threshold(id, phase, us) == spread.threshold(id, phase, us));
  }));
}

TEST(Spread, RefusesWhatSaysThatProcessesDifferLess) {
  const auto refused = [](const RunFiles& a, const RunFiles& b) {
    const RunFiles* const runs[] = {&a, &b};
    try {
      (void)measure_spread(runs);
      return std::string();
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
  };
  const Rows rows(12);
  const RunFiles run = synthetic_run(rows, 1), other = synthetic_run(rows, 2);
  EXPECT_EQ(refused(run, other), "");
  RunFiles copy = run;
  copy.samples.at(copy.rows[3]).cold_us = other.samples_of(copy.rows[3]).cold_us;
  EXPECT_NE(refused(run, copy).find("holds the samples of"), std::string::npos) << "but for one row the same";
  RunFiles pooled = other;
  pooled.rows[5].processes = 3;
  EXPECT_NE(refused(run, pooled).find("is of 3 processes"), std::string::npos);
  const TemporaryFolder folder;
  const auto read = [&](int processes) {
    constexpr const char* kTable = R"({{"device": "", "processes": {}, "sweeps": [], "classes": [], "rows": []}})";
    write_atomically(folder / kSpreadFile, fmt::format(fmt::runtime(kTable), processes));
    return read_spread(folder / kSpreadFile);
  };
  EXPECT_NO_THROW(read(1));
  EXPECT_THROW(read(3), std::runtime_error);
}

// A catalogue of 200 rows from 3 us to 3 ms, a fifth of them at the power cap. Processes differ: cold by an offset and
// a fraction, warm by less, and at the power cap by the clock.
Rows catalogue() {
  Rows rows(200);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].warm_us = 3 * std::pow(1000, static_cast<double>(i) / 199);
    rows[i].us = *rows[i].warm_us + 2;
    rows[i].samples = 40;
    if (i % 5 == 4 && rows[i].us > 50) rows[i].throttle = "sw_power_cap";
  }
  return rows;
}
RunFiles process(Rows rows, unsigned seed, double slowed = 0) {
  std::mt19937 random(seed + 1000);
  std::normal_distribution<double> normal;
  for (SyntheticRow& row : rows) {
    row.us = (row.us + 0.25 * normal(random)) * (1 + 0.003 * normal(random)) + slowed * *row.warm_us;
    *row.warm_us *= 1 + 0.0015 * normal(random) + slowed;
    if (row.throttle.empty()) continue;
    const double clock = 1 + 0.02 * normal(random);
    row.us /= clock, *row.warm_us /= clock, row.mhz = 1500 * clock;
  }
  return synthetic_run(rows, seed);
}

class SpreadOfACatalogue : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<RunFiles> runs;
    for (unsigned seed = 0; seed < 6; ++seed) runs.push_back(process(catalogue(), seed));
    std::vector<const RunFiles*> all;
    for (const RunFiles& run : runs) all.push_back(&run);
    write_atomically(folder_ / kSpreadFile, to_json(measure_spread(all)));
  }
  RunFiles baseline(unsigned seed) {
    RunFiles run = process(catalogue(), seed);
    run.folder = folder_.path();
    return run;
  }
  TemporaryFolder folder_;
};

TEST_F(SpreadOfACatalogue, ProcessesOfOneBuildDoNotRegress) {
  std::size_t compared = 0, ambiguous = 0;
  for (unsigned a = 10; a < 16; ++a)
    for (unsigned b = 20; b < 22; ++b) {
      const RunFiles before = baseline(a), after = process(catalogue(), b);
      const GateResult result = gate(before, after, {}, {});
      EXPECT_EQ(result.count(GateVerdict::regressed) + result.count(GateVerdict::improved), 0u) << a << " " << b;
      for (const GateRow& row : result.rows)
        EXPECT_TRUE(row.slowdown() < kStrictChange || row.verdict == GateVerdict::pass ||
                    !row.change.rows.a->throttle.empty());
      compared += result.rows.size(), ambiguous += result.count(GateVerdict::ambiguous);
    }
  EXPECT_EQ(compared, 2400u);
  EXPECT_LT(ambiguous, compared / 10);
}

TEST_F(SpreadOfACatalogue, WhatIsSlowedIsCaught) {
  for (unsigned seed = 30; seed < 34; ++seed) {
    const RunFiles before = baseline(seed), by_5 = process(catalogue(), seed + 10, 0.05),
                   by_3 = process(catalogue(), seed + 20, 0.03);
    for (const auto& [after, from_us] : {std::pair(&by_5, 0.0), std::pair(&by_3, 20.0)})
      for (const GateRow& row : gate(before, *after, {}, {}).rows) {
        EXPECT_NE(row.verdict, GateVerdict::improved) << "a clock that differs hides it at worst";
        if (row.change.warm->a_us < from_us || !row.change.rows.a->throttle.empty()) continue;
        EXPECT_EQ(row.verdict, GateVerdict::regressed) << row.change.warm->a_us;
      }
  }
}

}  // namespace
}  // namespace noisefloor
