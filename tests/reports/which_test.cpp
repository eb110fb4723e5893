// Which variant is the fastest, from rows that are made up.
#include "reports/which/which.h"

#include <gtest/gtest.h>

#include "reports/totals/totals.h"
#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

const ProblemId kProblem{"gemm", "m=4,n=4,k=4,act=silu,bias=0", "bf16"};

class Which : public testing::Test {
 protected:
  RunFiles run;

  SweepRow& add(const char* variant, const char* kind, double warm_us, const std::vector<double>& samples = {}) {
    SweepRow row;
    static_cast<CaseId&>(row) = {kProblem, variant};
    row.kind = kind;
    row.status = Outcome::ok;
    row.time_cold_us = row.time_warm_us = warm_us;
    if (!samples.empty()) run.samples[row].warm_us = samples;
    return run.rows.emplace_back(row);
  }
  // "first equal:second third"
  std::string order() const {
    std::string names;
    for (const RankedRow& one : rank_rows(run, kProblem))
      names += (names.empty()                                      ? ""
                : verdict_of(one.over_first) == PairVerdict::equal ? " equal:"
                                                                   : " ") +
               one.row->variant;
    return names;
  }
};

TEST_F(Which, IntervalsThatOverlapAreEqual) {
  add("naive", "naive", 100, std::vector<double>(50, 100));
  add("near", "ptx", 11, {10, 11, 12});
  add("first", "ptx", 10.5, {10, 10.5, 11});
  add("within_3_percent", "ptx", 10.6, std::vector<double>(50, 10.6));
  add("no_samples", "ptx", 11);
  EXPECT_EQ(order(), "first equal:within_3_percent equal:near no_samples naive");
}

TEST_F(Which, AComparisonInTurnsDecidesBeforeTimesDo) {
  add("ours", "ptx", 10);
  SweepRow& theirs = add("cudnn", "baseline", 11);
  theirs.paired_with = "ours";
  theirs.speedup_warm = 1.2, theirs.speedup_warm_low = 1.1, theirs.speedup_warm_high = 1.3;
  EXPECT_EQ(order(), "cudnn ours");
  EXPECT_EQ(rank_rows(run, kProblem)[1].over_first.value, 1.2);
  theirs.speedup_warm = 0.99, theirs.speedup_warm_low = 0.98, theirs.speedup_warm_high = 1.01;
  EXPECT_EQ(order(), "ours equal:cudnn");
  EXPECT_TRUE(which_report(run, kProblem, {}).headline.ends_with("equal: cudnn"));
}

TEST_F(Which, WhatIsLossyIsNeitherTheFirstNorCompared) {
  add("ours", "ptx", 10);
  add("peer_fp8", "baseline", 5).lossy = "8 bits";
  EXPECT_EQ(order(), "ours peer_fp8");
  EXPECT_NE(terminal_text(which_report(run, kProblem, {})).find("8 bits"), std::string::npos);
  for (const NetworkTotal& total : network_totals(run.rows, {{"net", "gemm", kProblem.problem, 1}})) {
    EXPECT_EQ(total.cold.us, total.choice == "peer_fp8" ? 5 : 10) << total.choice;
  }
  EXPECT_EQ(fastest_rows(run.rows, false).front()->variant, "ours");
}

TEST_F(Which, ItSaysWhoTheFirstIsWhatFailedAndHowToCall) {
  add("peer_fa", "baseline", 3).algorithm = "fa.call(q)";
  run.environment.texts["peer_fa"] = "flash-attn 4.0";
  SweepRow& wrong = add("wrong", "ptx", 2);
  wrong.status = Outcome::incorrect, wrong.reason = "off by one";
  expect_parts(terminal_text(which_report(run, kProblem, {})),
               {"flash-attn 4.0", "incorrect", "off by one", "fa.call(q)", "peer_fa is the fastest"});
  EXPECT_EQ(
      calls_of(add("tiled", "tiled", 4), {"a", "b"}).front(),
      "Python: noisefloor.ops.gemm(a=a, b=b, act=\"silu\", bias=0, k=4, m=4, n=4, dtype=\"bf16\", variant=\"tiled\")");
}

TEST_F(Which, ATableHasOursBesideTheBaselinesOfANetwork) {
  add("ours", "ptx", 10);
  SweepRow& theirs = add("cudnn", "baseline", 9);
  theirs.paired_with = "ours";
  theirs.speedup_warm = 1.1, theirs.speedup_warm_low = 1.05, theirs.speedup_warm_high = 1.2;
  add("peer_fp8", "baseline", 5).lossy = "8 bits";
  add("torch_eager", "baseline", 20).status = Outcome::incorrect;
  for (SweepRow& row : run.rows) row.networks = "net:3;other:1";
  for (const char* variant : {"ours", "cublaslt"}) {
    SweepRow& row = add(variant, variant[0] == 'o' ? "ptx" : "baseline", 10);
    row.problem = "m=1", row.networks = "other:2";
  }
  const auto rows = [&](const char* network) { return which_table(run, {network}, {"gemm"}).parts.front().table; };
  const Cells first = {kProblem.problem, "net x3", "ours", "10.0", "0.909 (0.833 to 0.952) slower",
                       "cudnn",          "9.0",    "5.0*"};
  EXPECT_EQ(rows("net"),
            (std::vector<Cells>{{"problem", "of, times a pass", "ours", "us", "speedup", "over", "cudnn", "peer_fp8"},
                                first}));
  ASSERT_EQ(rows("all").size(), 3);
  EXPECT_EQ(rows("all")[2], (Cells{"m=1", "other x2", "ours", "10.0", "1.00 equal", "cublaslt", "-", "-", "10.0"}));
  EXPECT_NE(terminal_text(which_table(run, {"net"}, {})).find("8 bits"), std::string::npos);
  EXPECT_THROW((void)rows("nett"), std::runtime_error);
}

TEST_F(Which, TheNearestProblemsComeFirst) {
  for (const char* problem : {"m=64,n=64,k=64", "m=4,n=5,k=4,act=silu,bias=0", "m=4,n=4,k=4", "m=4,n=4,k=4,act=gelu"})
    add("ptx", "ptx", 1).problem = problem;
  EXPECT_EQ(nearest_problems(run.rows, kProblem, 2),
            (std::vector<std::string>{"m=4,n=5,k=4,act=silu,bias=0", "m=4,n=4,k=4"}));
}

}  // namespace
}  // namespace noisefloor
