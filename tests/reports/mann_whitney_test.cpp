// The Mann-Whitney test and Holm's correction against values of SciPy 1.15 (mannwhitneyu, permutation_test) and
// statsmodels (multipletests).
#include "reports/history/mann_whitney.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

namespace noisefloor {
namespace {

using Values = std::vector<double>;

TEST(MannWhitney, IsExactForFewSamples) {
  EXPECT_NEAR(mann_whitney_p(Values{1, 2, 3, 4, 5}, Values{6, 7, 8, 9, 10}), 2.0 / 252, 1e-15);  // C(10, 5) = 252
  EXPECT_NEAR(mann_whitney_p(Values{1.1, 3.3, 4.4}, Values{2.2, 5.5, 6.6, 7.7}), 0.22857142857142856, 1e-15);
  EXPECT_NEAR(mann_whitney_p(Values{0.8, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46},
                             Values{1.15, 0.88, 0.90, 0.74, 1.21, 2.0, 2.1, 2.2, 2.3, 2.4}),
              0.27986100586719787, 1e-14);
}

// scipy.stats.permutation_test over all C(11, 5) = 462 ways, statistic |rank sum - mean|.
TEST(MannWhitney, IsExactWithTies) {
  EXPECT_NEAR(mann_whitney_p(Values{1, 2, 2, 3, 3, 3}, Values{2, 3, 4, 4, 5}), 0.10822510822510822, 1e-15);
}

TEST(MannWhitney, IsNormalForMany) {
  Values a, b;
  for (int i = 0; i < 30; ++i) a.push_back((i * 37) % 101 / 10.0);
  for (int i = 0; i < 25; ++i) b.push_back((i * 53 + 11) % 97 / 10.0 + 1);
  EXPECT_NEAR(mann_whitney_p(a, b), 0.39325516230814217, 1e-12);
  a.clear(), b.clear();
  for (int i = 0; i < 50; ++i) a.push_back(i), b.push_back(100 + i);
  EXPECT_NEAR(mann_whitney_p(a, b) / 7.066071930388932e-18, 1, 1e-9);
}

TEST(MannWhitney, CorrectsForTies) {
  Values a, b;
  for (int i = 0; i < 40; ++i) a.push_back((i * 7) % 5);
  for (int i = 0; i < 35; ++i) b.push_back((i * 3) % 6);
  EXPECT_NEAR(mann_whitney_p(a, b), 0.09307510767941386, 1e-12);
}

TEST(MannWhitney, SaysNothingOfNothing) {
  EXPECT_EQ(mann_whitney_p(Values{}, Values{1, 2}), 1);
  EXPECT_EQ(mann_whitney_p(Values(5, 3.0), Values(6, 3.0)), 1);
  EXPECT_EQ(mann_whitney_p(Values(50, 3.0), Values(60, 3.0)), 1);
}

Values any_values(int most) {
  const auto whole = *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, most), rc::gen::inRange(0, 40));
  return {whole.begin(), whole.end()};
}

TEST(MannWhitney, IsSymmetricAndKnowsRanksAlone) {
  EXPECT_TRUE(rc::check("p is that of the swapped sets, and of any rising function of the samples", [] {
    const Values a = any_values(60), b = any_values(60);
    const double p = mann_whitney_p(a, b);
    RC_ASSERT(p > 0 && p <= 1 + 1e-12);
    RC_ASSERT(std::abs(p - mann_whitney_p(b, a)) < 1e-12);
    const auto raised = [](Values values) {
      for (double& value : values) value = std::exp(value / 10);
      return values;
    };
    RC_ASSERT(mann_whitney_p(raised(a), raised(b)) == p);
  }));
}

TEST(Holm, MatchesKnownValues) {
  const auto adjusted = holm_adjusted(Values{0.01, 0.04, 0.03, 0.005, 0.5, 0.03});
  const Values known{0.05, 0.12, 0.12, 0.03, 0.5, 0.12};
  for (std::size_t i = 0; i < known.size(); ++i) EXPECT_NEAR(adjusted[i], known[i], 1e-15) << i;
  EXPECT_TRUE(holm_adjusted(Values{}).empty());
}

TEST(Holm, IsBetweenNoneAndBonferroni) {
  EXPECT_TRUE(rc::check("p <= adjusted <= min(1, n p), in the same order", [] {
    const auto whole = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1001)));
    Values p;
    for (const int value : whole) p.push_back(value / 1000.0);
    const auto adjusted = holm_adjusted(p);
    for (std::size_t i = 0; i < p.size(); ++i) {
      RC_ASSERT(adjusted[i] >= p[i]);
      RC_ASSERT(adjusted[i] <= std::min(1.0, static_cast<double>(p.size()) * p[i]) + 1e-12);
      for (std::size_t j = 0; j < p.size(); ++j) RC_ASSERT(p[i] > p[j] || adjusted[i] <= adjusted[j]);
    }
  }));
}

}  // namespace
}  // namespace noisefloor
