// The steps of samplers, on numbers, and what options they refuse.
#include "bench/pipeline/sampling_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/fields.h"

namespace noisefloor::pipeline {
namespace {

using networks::NetworkInfo;
using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::Solver;

// Of any level between EDM's, or with the training timesteps of a schedule.
NetworkInfo network_of(Prediction prediction, Schedule schedule = Schedule::karras) {
  NetworkInfo info = networks::require_network("digits");
  info.prediction = prediction;
  info.schedule = schedule;
  return info;
}

TEST(Samplers, ChurnRaisesTheLevelByItsGamma) {
  const auto steps = plan_steps({.steps = 10, .churn = 2}, network_of(Prediction::x0));
  EXPECT_DOUBLE_EQ(steps[3].sigma, steps[3].churned_from * 1.2);
  const auto capped = plan_steps({.steps = 10, .churn = 100}, network_of(Prediction::x0));
  EXPECT_DOUBLE_EQ(capped[3].sigma, capped[3].churned_from * std::sqrt(2.0));
}

TEST(Samplers, ClampWhatThePredictionStandsFor) {
  for (const StepPlan& step : plan_steps({.clamp = 3}, network_of(Prediction::x0))) EXPECT_EQ(step.row.limit, 3);
}

TEST(Samplers, RefuseOptionsThatMakeNoSense) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const SamplingOptions wrong[] = {
      {.steps = 0},
      {.steps = 1001},
      {.sigma_min = 0},
      {.sigma_min = 90},
      {.rho = 0},
      {.eta = 0.5},
      {.solver = Solver::ddim, .eta = 1.5},
      {.solver = Solver::ddim, .churn = 1},
      {.churn = -1},
      {.solver = Solver::dpmpp_2m, .schedule = Schedule::linear, .steps = 1000},
      {.solver = Solver::ddim,
       .schedule = Schedule::linear,
       .steps = 20,
       .spacing = sampler_step::Spacing::leading,
       .offset = 500},
      {.solver = Solver::ddim, .schedule = Schedule::linear, .offset = -1},
      {.solver = Solver::ddim, .schedule = Schedule::linear, .steps = 1000, .ends_noisy = true},
      {.sigma_max = kInfinity},
      {.rho = kInfinity},
      {.rho = 1e-5},
      {.sigma_max = 1e300},
      {.sigma_min = 1e-300},
      {.churn = kInfinity},
      {.guidance = NAN},
      {.clamp = kInfinity},
      {.solver = Solver::ddim, .eta = NAN},
      {.seed = std::uint64_t{1} << 63}};
  for (const SamplingOptions& options : wrong)
    EXPECT_THROW(plan_steps(options, network_of(Prediction::x0)), InvalidInput);
  EXPECT_EQ(plan_steps({.steps = 1}, network_of(Prediction::x0)).size(), 1u);
  const SamplingOptions all{.solver = Solver::dpmpp_2m,
                            .schedule = Schedule::linear,
                            .steps = 1000,
                            .spacing = sampler_step::Spacing::trailing};  // nothing is spaced beside them
  EXPECT_EQ(plan_steps(all, network_of(Prediction::noise, Schedule::linear)).size(), 1000u);
  EXPECT_EQ(plan_steps({.seed = (std::uint64_t{1} << 63) - 1}, network_of(Prediction::x0)).size(), 18u);
}

// The last two levels are one, where the spacing itself ends at timestep 0.
TEST(Samplers, EndAtTheLevelOfTheLastTimestepWithAnySpacing) {
  for (const Schedule schedule : {Schedule::linear, Schedule::scaled_linear, Schedule::cosine})
    for (const auto spacing :
         {sampler_step::Spacing::linspace, sampler_step::Spacing::leading, sampler_step::Spacing::trailing})
      for (const int steps : {1, 2, 3, 7, 20, 50}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(schedule) << ' ' << static_cast<int>(spacing) << ' '
                                        << steps);
        const SamplingOptions options{
            .solver = Solver::ddim, .schedule = schedule, .steps = steps, .spacing = spacing, .ends_noisy = true};
        EXPECT_EQ(std::ssize(plan_steps(options, network_of(Prediction::noise, schedule))), steps);
      }
}

TEST(Samplers, TimestepOfALevelInvertsTheSchedule) {
  for (const Schedule schedule : {Schedule::linear, Schedule::scaled_linear, Schedule::cosine}) {
    const std::vector<double> sigmas = sampler_step::training_sigmas(schedule);
    for (const Schedule visited : {schedule, Schedule::karras}) {
      const NetworkInfo info = network_of(Prediction::noise, schedule);
      const SamplingOptions options{.solver = Solver::edm_euler, .schedule = visited};
      for (const std::size_t t : {0u, 1u, 500u, 998u, 999u})
        EXPECT_NEAR(timestep_of(sigmas[t], options, info), static_cast<double>(t), 1e-6);
      EXPECT_EQ(timestep_of(1e-9, options, info), 0);
      EXPECT_EQ(timestep_of(1e9, options, info), 999);
      const double between = timestep_of(std::sqrt(sigmas[3] * sigmas[4]), options, info);
      if (visited == schedule)
        EXPECT_LT(between, 3.499);  // in a straight line, as the levels of its own linspace are
      else
        EXPECT_NEAR(between, 3.5, 1e-9);
    }
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
