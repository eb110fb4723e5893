#include "kernels/sampler_step/schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace noisefloor::sampler_step {
namespace {

constexpr double kRounding = 1e-12;

// The product of the paper's betas, summed as logarithms in long double.
double alpha_bar(int t, long double (*beta)(int)) {
  long double sum = 0;
  for (int s = 0; s <= t; ++s) sum += std::log1p(-beta(s));
  return static_cast<double>(std::exp(sum));
}

// Of Ho 2020, and of latent diffusion.
TEST(Schedule, LinearAndScaledLinearAreTheProductsOfTheirBetas) {
  using Beta = long double (*)(int);
  const Beta linear = [](int t) { return 1e-4L + (0.02L - 1e-4L) * static_cast<long double>(t) / 999; };
  const Beta scaled = [](int t) {
    const long double low = std::sqrt(0.00085L), high = std::sqrt(0.012L);
    const long double root = low + (high - low) * static_cast<long double>(t) / 999;
    return root * root;
  };
  for (const auto& [schedule, beta] : {std::pair{Schedule::linear, linear}, {Schedule::scaled_linear, scaled}}) {
    const auto alphas = cumulative_alphas(schedule);
    ASSERT_EQ(alphas.size(), 1000u);
    for (const int t : {0, 1, 10, 250, 500, 998, 999})
      EXPECT_NEAR(alphas[static_cast<std::size_t>(t)], alpha_bar(t, beta), kRounding) << t;
  }
  EXPECT_NEAR(cumulative_alphas(Schedule::linear)[0], 0.9999, kRounding);
  EXPECT_NEAR(cumulative_alphas(Schedule::scaled_linear)[999], 0.00466009, 1e-7);  // that Stable Diffusion's users know
}

// Where no beta is clipped the product telescopes to the formula itself.
TEST(Schedule, CosineIsThatOfNicholAndDhariwal2021) {
  const auto alphas = cumulative_alphas(Schedule::cosine);
  const auto f = [](double t) { return std::pow(std::cos((t / 1000 + 0.008) / 1.008 * std::numbers::pi / 2), 2); };
  for (int t = 0; t < 990; ++t) EXPECT_NEAR(alphas[static_cast<std::size_t>(t)], f(t + 1) / f(0), kRounding) << t;
  EXPECT_NEAR(1 - alphas[999] / alphas[998], 0.999, kRounding);
}

TEST(Schedule, KarrasIsEquation5) {
  const auto sigmas = karras_sigmas(18);
  ASSERT_EQ(sigmas.size(), 19u);
  for (int i = 0; i < 18; ++i) {
    const double high = std::pow(80.0, 1.0 / 7), low = std::pow(0.002, 1.0 / 7);
    const double expected = std::pow(high + i / 17.0 * (low - high), 7);
    EXPECT_NEAR(sigmas[static_cast<std::size_t>(i)], expected, kRounding * expected) << i;
  }
  EXPECT_EQ(sigmas[18], 0);
  EXPECT_NEAR(karras_sigmas(1)[0], 80, 80 * kRounding);
}

TEST(Schedule, SpacingsAreThoseOfLinAndOthers) {
  using Times = std::vector<int>;
  EXPECT_EQ(timesteps(10, Spacing::linspace), (Times{999, 888, 777, 666, 555, 444, 333, 222, 111, 0}));
  EXPECT_EQ(timesteps(10, Spacing::leading), (Times{900, 800, 700, 600, 500, 400, 300, 200, 100, 0}));
  EXPECT_EQ(timesteps(10, Spacing::leading, 1), (Times{901, 801, 701, 601, 501, 401, 301, 201, 101, 1}));
  EXPECT_EQ(timesteps(10, Spacing::trailing), (Times{999, 899, 799, 699, 599, 499, 399, 299, 199, 99}));
  EXPECT_THROW(timesteps(10, Spacing::leading, 100), std::invalid_argument);
}

RC_GTEST_PROP(Schedule, TimestepsFallWithinTheTrainingOnes, ()) {
  const int steps = *rc::gen::inRange(1, kTrainingSteps + 1);
  for (const Spacing spacing : {Spacing::linspace, Spacing::leading, Spacing::trailing}) {
    const bool whole = spacing == Spacing::linspace;  // from end to end
    const auto t = timesteps(steps, spacing);
    RC_ASSERT(static_cast<int>(t.size()) == steps);
    RC_ASSERT((whole ? t.front() == 999 && (steps == 1 || t.back() == 0) : t.front() < 1000 && t.back() >= 0));
    for (std::size_t i = 1; i < t.size(); ++i) {
      RC_ASSERT(t[i] < t[i - 1]);
      RC_ASSERT(!whole || std::abs((t[i - 1] - t[i]) - 999.0 / (steps - 1)) <= 1);
    }
  }
}

RC_GTEST_PROP(Schedule, LevelsLoseNoiseAndEndClean, ()) {
  const auto schedule =
      *rc::gen::element(Schedule::linear, Schedule::scaled_linear, Schedule::cosine, Schedule::karras);
  const int steps = *rc::gen::inRange(1, kTrainingSteps + 1);
  const auto exploding = noise_levels(schedule, steps, Scaling::variance_exploding);
  RC_ASSERT(static_cast<int>(exploding.size()) == steps + 1);
  RC_ASSERT(exploding.back().sigma == 0);
  for (std::size_t i = 1; i < exploding.size(); ++i) RC_ASSERT(exploding[i].sigma < exploding[i - 1].sigma);
  if (schedule == Schedule::karras) return;
  const auto preserving = noise_levels(schedule, steps, Scaling::variance_preserving);
  for (std::size_t i = 0; i < preserving.size(); ++i) {
    const NoiseLevel level = preserving[i];
    RC_ASSERT(std::fabs(level.alpha * level.alpha + level.sigma * level.sigma - 1) < kRounding);
    RC_ASSERT(std::fabs(exploding[i].sigma - level.sigma / level.alpha) <= kRounding * exploding[i].sigma);
    RC_ASSERT(exploding[i].alpha == 1);
  }
}

TEST(Schedule, KarrasHasNoBetas) {
  EXPECT_THROW(cumulative_alphas(Schedule::karras), std::invalid_argument);
  EXPECT_THROW(noise_levels(Schedule::karras, 10, Scaling::variance_preserving), std::invalid_argument);
}

}  // namespace
}  // namespace noisefloor::sampler_step
