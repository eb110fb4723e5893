// What speaks against a run as a baseline.
#include "reports/gate/gate.h"

#include <gtest/gtest.h>

#include "tests/support/gate_runs.h"

namespace noisefloor {
namespace {

TEST(Acceptance, AQuietRunRaisesNoDoubt) {
  RunFiles run = synthetic_run(rows_of(5, 100), 1);
  EXPECT_TRUE(doubts_about(run, nullptr).empty());
  for (SweepRow& row : run.rows) row.load = 0.05;
  EXPECT_TRUE(doubts_about(run, nullptr).empty());
}

TEST(Acceptance, LoadAndThrottlingAreNamed) {
  Rows rows = rows_of(5, 100);
  rows[2].status = Outcome::throttled;
  RunFiles run = synthetic_run(rows, 1);
  run.rows[0].load = 9;  // one row is not the run
  for (std::size_t i = 1; i < 5; ++i) run.rows[i].load = i == 1 ? 0.1 : 0.2;
  ASSERT_EQ(doubts_about(run, nullptr).size(), 1u);
  EXPECT_EQ(doubts_about(run, nullptr)[0], "1 of its rows is throttled");
  for (SweepRow& row : run.rows) row.load = 1.9;
  ASSERT_EQ(doubts_about(run, nullptr).size(), 2u);
  EXPECT_EQ(doubts_about(run, nullptr)[0], "it was measured beside other programs (1.9 of their threads could run)");
}

TEST(Acceptance, ABaselineThatEverythingBeatsIsSuspect) {
  const RunFiles slow = synthetic_run(rows_of(9, 300), 1);
  Rows mended = rows_of(9, 300);
  for (std::size_t i = 0; i < 4; ++i) mended[i].us = 30;
  const auto doubts = [&](const RunFiles& run) {
    const GateResult result = gate(slow, run, {});
    return doubts_about(run, &result);
  };
  EXPECT_TRUE(doubts(synthetic_run(mended, 2)).empty()) << "four of nine: that is work on an op";
  EXPECT_TRUE(doubts(synthetic_run(rows_of(9, 290), 2)).empty());
  ASSERT_EQ(doubts(synthetic_run(rows_of(9, 150), 2)).size(), 1u);
  EXPECT_EQ(doubts(synthetic_run(rows_of(9, 150), 2))[0],
            "half of its rows take less than 0.50 times the baseline's time");
}

}  // namespace
}  // namespace noisefloor
