// The interval of a paired comparison's ratio, and what passes of two builds say: verdicts on scripted passes, equal
// builds, and a build that is slower by one percent.
#include "reports/run/pair_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "reports/ab/build_pair_report.h"
#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

TEST(PairRatio, IntervalsHoldTheTruthNineteenTimesInTwenty) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(std::log(1.1), 0.02);
  int held = 0;
  constexpr int kTries = 2000;
  for (int i = 0; i < kTries; ++i) {
    std::vector<double> rounds(12);
    for (double& round : rounds) round = std::exp(noise(random));
    const Ratio ratio = ratio_of_rounds(rounds, 0);
    held += ratio.low <= 1.1 && 1.1 <= ratio.high;
  }
  EXPECT_NEAR(static_cast<double>(held) / kTries, 0.95, 0.02);
}

TEST(PairRatio, EqualSidesDifferByTheirNoiseToo) {
  const std::vector<double> rounds(12, 1.0);
  EXPECT_EQ(ratio_of_rounds(rounds, 0).low, 1);
  const Ratio ratio = ratio_of_rounds(rounds, 0.01);
  EXPECT_NEAR(ratio.high, std::exp(0.0196), 1e-9);
  EXPECT_NEAR(ratio.low * ratio.high, 1, 1e-12);
  EXPECT_THROW(ratio_of_rounds(std::vector{1.0}, 0), std::invalid_argument);
}

TEST(PairVerdict, FollowsTheInterval) {
  EXPECT_EQ(verdict_of({1.02, 1.01, 1.03}), PairVerdict::faster);
  EXPECT_EQ(verdict_of({0.97, 0.95, 0.99}), PairVerdict::slower);
  EXPECT_EQ(verdict_of({1.0, 0.98, 1.02}), PairVerdict::equal);
  EXPECT_EQ(verdict_of({1.0, 0.96, 1.02}), PairVerdict::unresolved);
  EXPECT_EQ(verdict_of({1.02, 0.99, 1.05}), PairVerdict::unresolved);
}

TEST(PairRatio, TheOtherSeesTheInverse) {
  const Ratio ratio = Ratio{1.25, 1.0, 2.0}.inverse();
  EXPECT_DOUBLE_EQ(ratio.value, 0.8);
  EXPECT_DOUBLE_EQ(ratio.low, 0.5);
  EXPECT_DOUBLE_EQ(ratio.high, 1.0);
}

BuildPair pair_of(std::vector<double> cold, std::vector<double> warm) {
  return {"gemm/m=1,n=2,k=3/bf16/tiled", std::move(cold), std::move(warm), ""};
}

TEST(BuildPair, EitherPhaseDecides) {
  const std::vector<double> alike = {1.001, 0.999, 1, 1.0005, 0.9995}, slow = {0.985, 0.9848, 0.9852, 0.9851, 0.9849},
                            fast = {1.02, 1.0202, 1.02, 1.0198, 1.02}, loose = {0.9, 1.1, 0.95, 1.08, 1};
  EXPECT_EQ(verdict_of(pair_of(alike, alike), 0.01), BuildVerdict::equal);
  EXPECT_EQ(verdict_of(pair_of(alike, slow), 0.01), BuildVerdict::slower);
  EXPECT_EQ(verdict_of(pair_of(slow, fast), 0.01), BuildVerdict::slower);
  EXPECT_EQ(verdict_of(pair_of(fast, loose), 0.01), BuildVerdict::faster);
  EXPECT_EQ(verdict_of(pair_of(loose, alike), 0.01), BuildVerdict::unresolved);
  EXPECT_EQ(verdict_of(pair_of(alike, slow), 0.05), BuildVerdict::equal) << "1.5 % is nothing where 5 % is asked for";
}

TEST(BuildPair, ACaseThatSlowedIsNotEqualBecauseItIsLittle) {
  // By 0.8 % within 0.1: the usual interval of five passes is from 0.9904 to 0.9932, the strict one reaches 0.9994.
  std::vector<double> alike, slow, fast;
  const auto take = [&](int passes) {
    for (int pass = 0; pass < passes; ++pass) {
      const double offset = pass % 2 ? 0.001 : -0.001;
      alike.push_back(1), slow.push_back(0.992 + offset), fast.push_back(1.008 + offset);
    }
  };
  take(5);
  EXPECT_EQ(verdict_of(pair_of(alike, slow), 0.01), BuildVerdict::unresolved);
  EXPECT_EQ(verdict_of(pair_of(slow, alike), 0.01), BuildVerdict::unresolved);
  EXPECT_EQ(verdict_of(pair_of(alike, fast), 0.01), BuildVerdict::equal) << "no passes for a small improvement";
  EXPECT_EQ(verdict_of(pair_of(fast, slow), 0.01), BuildVerdict::unresolved) << "slower may follow";
  take(7);
  EXPECT_EQ(verdict_of(pair_of(alike, slow), 0.01), BuildVerdict::slower);
}

TEST(BuildPair, LooksSlowerByTheMeanOfEitherPhase) {
  const std::vector<double> alike = {1.002, 0.998}, slow = {0.998, 0.991}, slight = {0.998, 0.993};
  EXPECT_TRUE(looks_slower(pair_of(alike, slow), 0.01));
  EXPECT_TRUE(looks_slower(pair_of(slow, alike), 0.01));
  EXPECT_FALSE(looks_slower(pair_of(slight, alike), 0.01));
  EXPECT_FALSE(looks_slower(pair_of({}, {}), 0.01));
}

// Of `rows` cases, how many are slower where processes have offsets of their own, as normal numbers of `offset`, and
// the new build is slower by `slowdown`. Passes as bench/sweep/alternate.h takes them.
int slower_of(int rows, double offset, double slowdown, std::uint64_t seed) {
  constexpr double kResolve = 0.01;
  constexpr std::size_t kPasses = 5, kMostPasses = 16, kMostPassesSlower = 32;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> pass(0, offset);
  int slower = 0;
  for (int row = 0; row < rows; ++row) {
    BuildPair pair = pair_of({}, {});
    BuildVerdict verdict = BuildVerdict::unresolved;
    while (verdict == BuildVerdict::unresolved &&
           (pair.warm.size() < kMostPasses || (looks_slower(pair, kResolve) && pair.warm.size() < kMostPassesSlower))) {
      for (auto* phase : {&pair.cold, &pair.warm}) phase->push_back((1 + pass(random)) / (1 + slowdown));
      if (pair.warm.size() >= kPasses) verdict = verdict_of(pair, kResolve);
    }
    slower += verdict == BuildVerdict::slower;
  }
  return slower;
}

TEST(BuildPair, OnePercentIsCaughtWhereProcessesAreThatSteady) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_GE(slower_of(300, 0.004, 0.01, seed), 285) << "seed " << seed;
    EXPECT_GE(slower_of(300, 0.005, 0.03, seed), 295) << "seed " << seed;
  }
}

TEST(BuildPair, EqualBuildsAreNotSlowerHoweverProcessesDiffer) {
  int slower = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    for (const double offset : {0.001, 0.0025, 0.01, 0.05}) slower += slower_of(300, offset, 0, seed);
  EXPECT_LE(slower, 5) << "of 12,000";
}

TEST(BuildPair, ReportsWorstFirst) {
  std::vector<BuildPair> pairs = {pair_of({1.02, 1.02, 1.02}, {1, 1, 1}), pair_of({0.98, 0.98, 0.98}, {1, 1, 1}),
                                  pair_of({1, 1, 1}, {1, 1, 1}), pair_of({}, {})};
  pairs[3].why_not = "the new build: a,b";
  const BuildPairText text{pairs, 0.01, "aaa", "bbb"};
  const std::string terminal = terminal_text(report_of(text));
  EXPECT_LT(terminal.find("slower"), terminal.find("missing"));
  EXPECT_LT(terminal.find("missing"), terminal.find("faster"));
  EXPECT_NE(terminal.find("+2.0"), std::string::npos) << "as a change of the time: " << terminal;
  expect_parts(terminal, {"bbb against aaa: 4 cases, resolving 1 %: 1 slower, 1 missing, 1 faster, 1 equal"});
  EXPECT_NE(markdown_text(report_of(text)).find("|---|---|---:|---:|---:|---|"), std::string::npos)
      << markdown_text(report_of(text));
  const std::string csv = csv_text(text);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_NE(csv.find("missing,,,,,,,0,\"the new build: a,b\""), std::string::npos) << csv;
}

}  // namespace
}  // namespace noisefloor
