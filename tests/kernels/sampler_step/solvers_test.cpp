// Every solver's row is held to its formulas: what it reads and keeps, the noise it adds, that it ends at x0, how fast
// it converges. A new row is held to all of this without a line here.
#include "kernels/sampler_step/solvers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "kernels/core/op.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {

void PrintTo(const SolverRow& row, std::ostream* stream) {
  *stream << row.name;
}

namespace {

using Noise = sampler_step::Noise;

Problem problem_of(const SolverRow& row, int steps, int step, Half half = Half::first, double eta = 0) {
  Problem problem;
  problem.batch = problem.elements = 1;
  problem.solver = row.solver;
  problem.prediction = Prediction::x0;
  problem.steps = steps;
  problem.step = step;
  problem.schedule = row.schedule;
  problem.half = half;
  problem.eta = eta;
  problem.noise = stochastic(row, eta) ? Noise::drawn : Noise::none;
  return problem;
}

// A case of every step of a solver, as the op has it.
template <class See>
void each_step(const SolverRow& row, int steps, See&& see) {
  for (const double eta : {0.0, 1.0}) {
    if (eta > 0 && !row.takes_eta()) continue;
    for (int step = 0; step < steps; ++step)
      for (int half = 0; half < (step + 1 < steps ? row.calls_of(step) : 1); ++half)
        see(problem_of(row, steps, step, static_cast<Half>(half), eta));
  }
}

class Solvers : public testing::TestWithParam<SolverRow> {};

TEST_P(Solvers, StepsAreAcceptedAndTheirTensorsAreWhatTheFormulasRead) {
  const SolverRow& row = GetParam();
  const Op op = make_op(definition);
  for (const int steps : {1, 2, 3, 7}) {
    bool kept = false;  // by the launch before
    each_step(row, steps, [&](const Problem& problem) {
      const AnyProblem any(problem);
      const std::string text = op.print(any);
      ASSERT_EQ(op.print(op.parse(text)), text);
      std::set<std::string> names;
      for (const TensorSpec& spec : op.tensors(any, DType::fp32)) names.insert(spec.name);
      const auto coefficients = coefficient_table(problem)[static_cast<std::size_t>(problem.step)];
      EXPECT_EQ(names.contains("history"), coefficients.history != 0) << text;
      EXPECT_EQ(names.contains("history"), kept) << text << ": the launch before";
      EXPECT_EQ(coefficients.noise != 0, problem.noise == Noise::drawn && !problem.last()) << text;
      if (problem.last() && (steps == 1 || !row.mixes_to_the_end)) {
        EXPECT_TRUE(coefficients.x == 0 && std::fabs(coefficients.x0 - 1) < 1e-12) << text << " does not end at x0";
      }
      const bool keeps = names.contains("history_out");
      // What the first half of a first step kept is there for the second step too, which reads it unless it is the
      // last.
      kept = keeps || (kept && problem.half == Half::second && row.calls == 1 && (steps > 2 || row.mixes_to_the_end));
      if (keeps) {
        EXPECT_NE(coefficients.history_x0, 0) << text;
        EXPECT_EQ(coefficients.history_x == 0 && coefficients.history_x0 == 1, row.keeps_x0) << text;
      }
    });
    EXPECT_FALSE(kept) << row.name << ": the last launch keeps what nothing reads";
  }
}

TEST_P(Solvers, StochasticOnesNeedNoiseAndTheOthersRefuseIt) {
  const SolverRow& row = GetParam();
  each_step(row, 5, [&](Problem problem) {
    if (problem.last()) return;
    problem.noise = problem.noise == Noise::none ? Noise::given : Noise::none;
    EXPECT_THROW(definition.check(problem), InvalidInput) << row.name << " step " << problem.step;
  });
}

TEST_P(Solvers, EtaAndHalfAreForThoseThatTakeThem) {
  const SolverRow& row = GetParam();
  if (!row.takes_eta()) {
    Problem problem = problem_of(row, 5, 1);
    problem.eta = 0.5;
    EXPECT_THROW(definition.check(problem), InvalidInput);
  }
  for (int step = 0; step < 2; ++step) {
    if (row.calls_of(step) == 1) {
      EXPECT_THROW(definition.check(problem_of(row, 5, step, Half::second)), InvalidInput);
    }
  }
}

// Normally distributed data of deviation s: the ideal denoiser is linear, and latents at a level have the deviation
// hypot(alpha s, sigma). A solver's steps are linear too, so that the deviation that it ends with is known; how it
// nears s tells the order.
double error_at_end(const SolverRow& row, Schedule schedule, int steps, double eta) {
  constexpr double s = 0.5;
  const auto table = [&](Half half) {
    Problem problem = problem_of(row, steps, 0, half, eta);
    problem.schedule = schedule;
    return coefficient_table(problem);
  };
  Problem problem = problem_of(row, steps, 0);
  problem.schedule = schedule;
  const auto levels = noise_levels(schedule, steps, scaling(problem));
  const auto ideal = [&](double x, NoiseLevel at) {
    return x * at.alpha * s * s / (at.alpha * at.alpha * s * s + at.sigma * at.sigma);
  };
  const auto first = table(Half::first), second = row.calls == 2 ? table(Half::second) : first;
  double x = std::hypot(levels[0].alpha * s, levels[0].sigma), kept = 0, variance = 0;  // of x, and of noise in it
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto step = [&](const CoefficientRow<double>& c, NoiseLevel at) {
      const double x0 = ideal(x, at), shrink = c.x + c.x0 * ideal(1, at), before = kept;
      kept = c.history_x * x + c.history_x0 * x0;
      x = c.x * x + c.x0 * x0 + c.history * before;
      variance = shrink * shrink * variance + c.noise * c.noise;
    };
    step(first[i], levels[i]);
    if (row.calls == 2 && i + 1 < first.size()) step(second[i], levels[i + 1]);
  }
  return std::fabs(std::sqrt(x * x + variance) / s - 1);
}

TEST_P(Solvers, ConvergeWithTheirOrder) {
  const SolverRow& row = GetParam();
  for (const double eta : {0.0, 1.0}) {
    if (eta > 0 && !row.takes_eta()) continue;
    const double order =
        std::log2(error_at_end(row, row.schedule, 100, eta) / error_at_end(row, row.schedule, 200, eta));
    EXPECT_NEAR(order, row.order, 0.35) << row.name << " eta " << eta;
    EXPECT_LT(error_at_end(row, row.schedule, 200, eta), std::pow(0.05, row.order)) << row.name << " eta " << eta;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Solvers, testing::ValuesIn(solvers().begin(), solvers().end()),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace noisefloor::sampler_step
