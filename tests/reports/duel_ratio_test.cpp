// The interval of a duel's ratio, and what it says.
#include "reports/run/duel_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace noisefloor {
namespace {

TEST(DuelRatio, IntervalsHoldTheTruthNineteenTimesInTwenty) {
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

TEST(DuelRatio, EqualSidesDifferByTheirSpreadToo) {
  const std::vector<double> rounds(12, 1.0);
  EXPECT_EQ(ratio_of_rounds(rounds, 0).low, 1);
  const Ratio ratio = ratio_of_rounds(rounds, 0.01);
  EXPECT_NEAR(ratio.high, std::exp(0.0196), 1e-9);
  EXPECT_NEAR(ratio.low * ratio.high, 1, 1e-12);
  EXPECT_THROW(ratio_of_rounds(std::vector{1.0}, 0), std::invalid_argument);
}

TEST(DuelVerdict, FollowsTheInterval) {
  EXPECT_EQ(verdict_of({1.02, 1.01, 1.03}), DuelVerdict::faster);
  EXPECT_EQ(verdict_of({0.97, 0.95, 0.99}), DuelVerdict::slower);
  EXPECT_EQ(verdict_of({1.0, 0.98, 1.02}), DuelVerdict::equal);
  EXPECT_EQ(verdict_of({1.0, 0.96, 1.02}), DuelVerdict::unresolved);
  EXPECT_EQ(verdict_of({1.02, 0.99, 1.05}), DuelVerdict::unresolved);
}

TEST(DuelRatio, TheRivalSeesTheInverse) {
  const Ratio ratio = Ratio{1.25, 1.0, 2.0}.inverse();
  EXPECT_DOUBLE_EQ(ratio.value, 0.8);
  EXPECT_DOUBLE_EQ(ratio.low, 0.5);
  EXPECT_DOUBLE_EQ(ratio.high, 1.0);
}

}  // namespace
}  // namespace noisefloor
