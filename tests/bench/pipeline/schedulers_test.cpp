// Samplers with the timesteps of checkpoints, held to diffusers' schedulers (schedulers.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "bench/pipeline/sampling.h"
#include "reports/run/csv.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::Solver;

// Runs a sampler's steps over schedulers.py's function in the place of a network.
class OverAFunction {
 public:
  OverAFunction(const SamplingOptions& options, Prediction prediction)
      : options_(options), steps_(plan_steps(options, prediction)) {}

  std::size_t steps() const { return steps_.size(); }
  double start() const { return 0.7 * std::hypot(1.0, steps_.front().sigma); }
  double timestep(std::size_t step) const { return timestep_of(steps_[step].sigma, options_.schedule); }
  double next(std::size_t step, double x) {
    const StepPlan& plan = steps_[step];
    double next = half(plan.row, plan.sigma, x);
    for (std::size_t k = 0; k < plan.older.size(); ++k) next += plan.older[k] * kept_[kept_.size() - 3 - k];
    return plan.second ? half(*plan.second, plan.sigma_next, next) : next;
  }

 private:
  double half(const sampler_step::CoefficientRow<double>& row, double sigma, double x) {
    const double seen = x / std::hypot(1.0, sigma);
    const double model =
        0.8 * std::sin(2 * seen) + 0.1 * std::cos(std::round(timestep_of(sigma, options_.schedule)) / 70);
    const double x0 = row.model_x * x + row.model * model;
    const double next = row.x * x + row.x0 * x0 + row.history * kept_.back();
    if (row.history_x0 != 0) kept_.push_back(row.history_x * x + row.history_x0 * x0);
    return next;
  }

  SamplingOptions options_;
  std::vector<StepPlan> steps_;
  std::vector<double> kept_{0};
};

int index_of(std::span<const char* const> names, const std::string& name) {
  return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
}

// schedulers.csv: diffusers' own trajectories, whose tables are fp32.
TEST(Samplers, FollowDiffusersSchedulersStepByStep) {
  const CsvFile file = read_csv("tests/bench/pipeline/schedulers.csv");
  const auto text = [&](std::size_t line, const char* column) { return file.lines[line].fields[file.column(column)]; };
  int trajectories = 0;
  for (std::size_t line = 0; line < file.lines.size(); ++trajectories) {
    const SamplingOptions options{
        .solver = static_cast<Solver>(index_of(sampler_step::solver_names(), text(line, "solver"))),
        .schedule = Schedule::scaled_linear,
        .steps = std::stoi(text(line, "steps")),
        .spacing = static_cast<sampler_step::Spacing>(index_of(sampler_step::kSpacingNames, text(line, "spacing"))),
        .offset = std::stoi(text(line, "offset")),
        .ends_noisy = text(line, "final") == "first"};
    SCOPED_TRACE(fmt::format("line {} of schedulers.csv", line + 2));
    OverAFunction sampler(options, text(line, "prediction") == "v" ? Prediction::v : Prediction::noise);
    double x = sampler.start();
    for (std::size_t step = 0; step <= sampler.steps(); ++step, ++line) {
      const double wanted = std::stod(text(line, "x"));
      ASSERT_NEAR(x, wanted, 2e-6 * std::max(1.0, std::fabs(wanted))) << "step " << step;
      if (step == sampler.steps()) {
        EXPECT_EQ(text(line, "timestep"), "");
        continue;
      }
      ASSERT_NEAR(sampler.timestep(step), std::stod(text(line, "timestep")), 1e-6) << "step " << step;
      x = sampler.next(step, x);
    }
  }
  // Predictions, numbers of steps, spacings and ends of each solver; of PNDM one prediction, end and spacing.
  EXPECT_EQ(trajectories, 2 * (2 * (2 * 2 + 2 + 3 + 1) + 1));
}

}  // namespace
}  // namespace noisefloor::pipeline
