// What passes of two builds say: verdicts on scripted passes, equal builds, and a build that is slower by one percent.
#include "reports/run/build_duel.h"

#include <gtest/gtest.h>

#include <random>

#include "reports/build_duel_report.h"

namespace noisefloor {
namespace {

BuildDuel duel_of(std::vector<double> cold, std::vector<double> warm) {
  return {{{"gemm", "m=1,n=2,k=3", "bf16"}, "tiled"}, std::move(cold), std::move(warm), ""};
}

TEST(BuildDuel, EitherPhaseDecides) {
  const std::vector<double> alike = {1.001, 0.999, 1, 1.0005, 0.9995}, slow = {0.985, 0.983, 0.986, 0.984, 0.985},
                            fast = {1.02, 1.021, 1.02, 1.019, 1.02}, loose = {0.9, 1.1, 0.95, 1.08, 1};
  EXPECT_EQ(verdict_of(duel_of(alike, alike), 0.01), BuildVerdict::equal);
  EXPECT_EQ(verdict_of(duel_of(alike, slow), 0.01), BuildVerdict::slower);
  EXPECT_EQ(verdict_of(duel_of(slow, fast), 0.01), BuildVerdict::slower);
  EXPECT_EQ(verdict_of(duel_of(fast, loose), 0.01), BuildVerdict::faster);
  EXPECT_EQ(verdict_of(duel_of(loose, alike), 0.01), BuildVerdict::unresolved);
  EXPECT_EQ(verdict_of(duel_of(alike, slow), 0.05), BuildVerdict::equal) << "1.5 % is nothing where 5 % is asked for";
}

TEST(BuildDuel, WithoutTimesItSaysWhy) {
  BuildDuel duel = duel_of({}, {});
  duel.why_not = "the old build: this build has no variant 'tiled' of gemm";
  EXPECT_EQ(verdict_of(duel, 0.01), BuildVerdict::missing);
  duel.without_times = BuildVerdict::wrong;
  EXPECT_EQ(verdict_of(duel, 0.01), BuildVerdict::wrong);
}

// Passes whose processes have offsets of their own of 0.25 %, as normal numbers: `slowdown` of the new build.
int slower_of(int rows, double slowdown, std::uint64_t seed) {
  constexpr double kOffset = 0.0025;
  constexpr int kPasses = 5;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> offset(0, kOffset);
  int slower = 0;
  for (int row = 0; row < rows; ++row) {
    BuildDuel duel = duel_of({}, {});
    for (int pass = 0; pass < kPasses; ++pass)
      for (auto* phase : {&duel.cold, &duel.warm}) phase->push_back((1 + offset(random)) / (1 + slowdown));
    slower += verdict_of(duel, 0.01) == BuildVerdict::slower;
  }
  return slower;
}

TEST(BuildDuel, EqualBuildsAreNotSlowerAndOnePercentIsCaught) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(slower_of(300, 0, seed), 0) << "seed " << seed;
    EXPECT_GE(slower_of(300, 0.01, seed), 285) << "seed " << seed;
  }
}

TEST(BuildDuel, ReportsWorstFirst) {
  std::vector<BuildDuel> duels = {duel_of({1.02, 1.02, 1.021}, {1, 1, 1}), duel_of({0.98, 0.98, 0.981}, {1, 1, 1}),
                                  duel_of({1, 1, 1}, {1, 1, 1}), duel_of({}, {})};
  duels[3].why_not = "the new build: a,b";
  const BuildDuelText text{duels, 0.01, "aaa", "bbb"};
  const std::string terminal = terminal_text(text);
  EXPECT_LT(terminal.find("slower"), terminal.find("missing"));
  EXPECT_LT(terminal.find("missing"), terminal.find("faster"));
  EXPECT_NE(terminal.find("+2.0"), std::string::npos) << "as a change of the time: " << terminal;
  EXPECT_NE(terminal.find("bbb against aaa: 4 cases, resolving 1 %: 1 slower, 1 missing, 1 faster, 1 equal"),
            std::string::npos)
      << terminal;
  EXPECT_NE(markdown_text(text).find("|---|---|---:|---:|---:|---|"), std::string::npos) << markdown_text(text);
  const std::string csv = csv_text(text);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_NE(csv.find("missing,,,,,,,0,\"the new build: a,b\""), std::string::npos) << csv;
}

}  // namespace
}  // namespace noisefloor
