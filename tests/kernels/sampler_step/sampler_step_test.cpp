#include "kernels/sampler_step/sampler_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/core/philox.h"
#include "tests/support/host_data.h"

namespace noisefloor::sampler_step {
namespace {

constexpr double kExact = 1e-12;

const Op& op() {
  static const Op instance = make_op(definition);
  return instance;
}

Problem problem_of(const std::string& text) {
  return op().parse(text).as<Problem>();
}

std::vector<CoefficientRow<double>> table_of(const std::string& text) {
  return coefficient_table(problem_of("batch=1,elements=1," + text));
}

// ---- the solvers' coefficients

TEST(sampler_step_coefficients, GuidanceAndBlendAreFoldedIn) {
  const auto plain = table_of("solver=ddim")[10];
  const auto both = table_of("solver=ddim,guidance=7.5,blend=0.25,clamp=2")[10];
  const double uncond = 0.4, cond = -0.9;
  EXPECT_NEAR(both.model * uncond + both.model_cond * cond, plain.model * (uncond + 7.5 * (cond - uncond)), kExact);
  EXPECT_NEAR(both.x, 0.75 * plain.x, kExact);
  EXPECT_NEAR(both.x0, 0.75 * plain.x0, kExact);
  EXPECT_EQ(both.previous, 0.25);
  EXPECT_EQ(both.limit, 2);
  EXPECT_TRUE(std::isinf(plain.limit));
}

// ---- the op

HostData data_of(const std::string& text, DType dtype) {
  return {op(), text, dtype, 99};
}

// And of nothing else, as the batch that it is drawn in.
TEST(sampler_step, NoiseIsThatOfSeedImageStepAndElement) {
  constexpr std::uint64_t kSeed = (std::uint64_t{1} << 32) + 42, kStep = 11;  // both halves of the seed
  HostData test = data_of("batch=3,elements=2050,solver=ddpm,noise=drawn,seed=4294967338,image=5,step=11", DType::fp32);
  ASSERT_EQ(test.problem.as<Problem>().seed, static_cast<std::int64_t>(kSeed));
  ASSERT_TRUE(test.run_host().ok());
  const auto c = coefficient_table(test.problem.as<Problem>())[kStep];
  for (std::int64_t i = 0; i < 3 * 2050; ++i) {
    const double x = test.get(0, i), x0 = c.model_x * x + c.model * test.get(1, i);
    const auto image = static_cast<std::uint64_t>(5 + i / 2050), within = static_cast<std::uint64_t>(i % 2050);
    const Normal4 drawn = philox_normal4(kSeed, image, kStep << 32 | within / 4);
    ASSERT_NEAR((test.get("x_next", i) - c.x * x - c.x0 * x0) / c.noise, drawn.v[within % 4], 1e-3) << i;
  }
}

TEST(sampler_step, NanPassesThroughTheClamp) {
  HostData test = data_of("batch=1,elements=16,solver=ddim,clamp=1", DType::fp32);
  test.set(test.index("model_output"), 3, NAN);
  ASSERT_TRUE(test.run_host().ok());
  EXPECT_TRUE(std::isnan(test.get("x_next", 3)));
  EXPECT_FALSE(std::isnan(test.get("x_next", 4)));
}

}  // namespace
}  // namespace noisefloor::sampler_step
