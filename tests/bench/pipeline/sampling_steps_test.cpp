// The steps of samplers, on numbers, and what options they refuse.
#include "bench/pipeline/sampling_steps.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
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

// Runs a sampler's rows on numbers, with the exact denoiser of a Gaussian N(mean, deviation^2): what it would do to one
// pixel. `noise` stands for every random number.
double run_on_gaussian(const SamplingOptions& options, Prediction prediction, double mean, double deviation,
                       double start, double noise = 0) {
  const auto denoised = [&](double x, double sigma) {
    return (deviation * deviation * x + sigma * sigma * mean) / (deviation * deviation + sigma * sigma);
  };
  const auto model = [&](double x, double sigma) {
    return prediction == Prediction::x0 ? denoised(x, sigma) : (x - denoised(x, sigma)) / sigma;
  };
  double x = start;
  std::vector<double> kept{0};
  const auto apply = [&](const sampler_step::CoefficientRow<double>& row, double at, double output) {
    const double x0 = std::clamp(row.model_x * at + row.model * output, -row.limit, row.limit);
    const double next = row.x * at + row.x0 * x0 + row.history * kept.back() + row.noise * noise;
    if (row.history_x0 != 0) kept.push_back(row.history_x * at + row.history_x0 * x0);
    return next;
  };
  for (const StepPlan& step : plan_steps(options, network_of(prediction, options.schedule))) {
    x += std::sqrt(std::max(0.0, step.sigma * step.sigma - step.churned_from * step.churned_from)) * noise;
    double proposal = apply(step.row, x, model(x, step.sigma));
    // Of the newest outputs the last is this step's, if it keeps one, and the one before is what its launch reads.
    const std::size_t newest = kept.size() - (step.row.history_x0 != 0 ? 2 : 1);
    for (std::size_t k = 0; k < step.older.size(); ++k) proposal += step.older[k] * kept[newest - 1 - k];
    x = step.second ? apply(*step.second, proposal, model(proposal, step.sigma_next)) : proposal;
  }
  return x;
}

// The probability flow of N(m, s^2): (x - m) / sqrt(s^2 + sigma^2) stays constant; from sigma_max to sigma_min, and a
// last step to 0 whose error is that of sigma_min, of all solvers.
TEST(Samplers, ConvergeWithTheirOrderOnAGaussian) {
  const double mean = 0.3, deviation = 0.5, start = 40;
  const double exact = mean + (start - mean) * deviation / std::sqrt(deviation * deviation + 80.0 * 80.0);
  for (const sampler_step::SolverRow& row : sampler_step::solvers()) {
    if (sampler_step::stochastic(row, 0)) continue;
    const auto error = [&](int steps) {
      return std::fabs(run_on_gaussian({.solver = row.solver, .steps = steps, .sigma_min = 1e-4}, Prediction::x0, mean,
                                       deviation, start) -
                       exact);
    };
    EXPECT_NEAR(std::log2(error(64) / error(128)), row.order, 0.3) << row.name;
  }
}

RC_GTEST_PROP(Samplers, PredictionsOfNoiseAndOfX0Agree, ()) {
  const auto solver = sampler_step::solvers()[*rc::gen::inRange<std::size_t>(0, sampler_step::solvers().size())].solver;
  const auto schedule =
      *rc::gen::element(Schedule::linear, Schedule::scaled_linear, Schedule::cosine, Schedule::karras);
  const SamplingOptions options{.solver = solver, .schedule = schedule, .steps = *rc::gen::inRange(1, 60)};
  const double by_noise = run_on_gaussian(options, Prediction::noise, 0.2, 0.6, 3, 0.5);
  const double by_x0 = run_on_gaussian(options, Prediction::x0, 0.2, 0.6, 3, 0.5);
  RC_ASSERT(std::fabs(by_noise - by_x0) < 1e-6 * std::max(1.0, std::fabs(by_x0)));
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
