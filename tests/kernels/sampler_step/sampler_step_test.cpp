#include "kernels/sampler_step/sampler_step.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
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

RC_GTEST_PROP(sampler_step_coefficients, DdimWithEta1IsDdpm, ()) {
  const std::string schedule = *rc::gen::element<std::string>("linear", "scaled_linear", "cosine");
  const int steps = *rc::gen::inRange(1, 1001);
  const std::string common = ",noise=given,step=0,schedule=" + schedule + ",steps=" + std::to_string(steps);
  const auto ddpm = table_of("solver=ddpm" + common);
  const auto ddim = table_of("solver=ddim,eta=1" + common);
  for (std::size_t i = 0; i < ddpm.size(); ++i) {
    RC_ASSERT(std::fabs(ddpm[i].x - ddim[i].x) < kExact);
    RC_ASSERT(std::fabs(ddpm[i].x0 - ddim[i].x0) < kExact);
    RC_ASSERT(std::fabs(ddpm[i].noise - ddim[i].noise) < kExact);
  }
}

TEST(sampler_step_coefficients, PredictionsOfOneLatentGiveOneX0) {
  for (const std::string solver : {"ddim", "edm_euler"}) {
    for (const std::size_t step : {0u, 10u, 49u}) {
      const std::string text = "solver=" + solver + ",prediction=";
      const Problem problem = problem_of("batch=1,elements=1," + text + "x0");
      const NoiseLevel level = noise_levels(problem.schedule, 50, scaling(problem))[step];
      const double x0 = 0.3, noise = -1.1;
      const double x = level.alpha * x0 + level.sigma * noise;
      const double scale = std::hypot(level.alpha, level.sigma);  // v is defined on variance-preserving latents
      const double v = (level.alpha * noise - level.sigma * x0) / scale;
      const auto predicted = [&](const char* prediction, double model) {
        const auto row = table_of(text + prediction)[step];
        return row.model_x * x + row.model * model;
      };
      EXPECT_NEAR(predicted("x0", x0), x0, kExact);
      EXPECT_NEAR(predicted("noise", noise), x0, 1e-10);
      EXPECT_NEAR(predicted("v", v), x0, kExact);
    }
  }
}

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

TEST(sampler_step, NoiseDoesNotDependOnTheBatch) {
  const std::string text = "elements=2050,solver=ddpm,noise=drawn,seed=42,";
  HostData together = data_of(text + "batch=4,image=5", DType::fp32);
  ASSERT_TRUE(together.run_host().ok());
  HostData alone = data_of(text + "batch=1,image=7", DType::fp32);
  const std::int64_t offset = 2 * 2050;
  for (const char* input : {"x", "model_output"})
    std::memcpy(alone.storage[alone.index(input)].data(),
                together.storage[together.index(input)].data() + offset * static_cast<std::int64_t>(sizeof(float)),
                2050 * sizeof(float));
  ASSERT_TRUE(alone.run_host().ok());
  for (std::int64_t e = 0; e < 2050; ++e) ASSERT_EQ(alone.get("x_next", e), together.get("x_next", offset + e));
}

TEST(sampler_step, NoiseDependsOnSeedStepAndImage) {
  const auto first = [](const std::string& text) {
    HostData test = data_of("batch=1,elements=64,solver=ddpm,noise=drawn," + text, DType::fp32);
    EXPECT_TRUE(test.run_host().ok());
    const auto c =
        coefficient_table(test.problem.as<Problem>())[static_cast<std::size_t>(test.problem.as<Problem>().step)];
    const double x = test.get(0, 0), x0 = c.model_x * x + c.model * test.get(1, 0);
    return (test.get("x_next", 0) - c.x * x - c.x0 * x0) / c.noise;
  };
  const double base = first("seed=1");
  EXPECT_GT(std::fabs(first("seed=2") - base), 1e-3);
  EXPECT_GT(std::fabs(first("seed=4294967297") - base), 1e-3);  // differs in the upper half only
  EXPECT_GT(std::fabs(first("seed=1,step=11") - base), 1e-3);
  EXPECT_GT(std::fabs(first("seed=1,image=1") - base), 1e-3);
  EXPECT_NEAR(first("seed=1"), philox_normal4(1, 0, std::uint64_t{10} << 32).v[0], 1e-4);
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
