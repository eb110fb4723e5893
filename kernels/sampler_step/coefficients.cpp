#include "kernels/sampler_step/coefficients.h"

#include <cmath>
#include <limits>

#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {
namespace {

using Row = CoefficientRow<double>;

}  // namespace

// The v of Salimans and Ho, "Progressive Distillation" (2022), is defined on variance-preserving latents: x / s with
// s^2 = alpha^2 + sigma^2, which makes x0 = alpha/s^2 x - sigma/s v at any scaling.
FromOutput x0_from(Prediction prediction, NoiseLevel at) {
  switch (prediction) {
    case Prediction::noise:  // x = alpha x0 + sigma noise
      return {1 / at.alpha, -at.sigma / at.alpha};
    case Prediction::x0:
      break;
    case Prediction::v: {
      const double deviation = std::hypot(at.alpha, at.sigma);
      return {at.alpha / (deviation * deviation), -at.sigma / deviation};
    }
  }
  return {0, 1};
}

Coefficients rounded(const Row& row) {
  const auto f = [](double value) { return static_cast<float>(value); };
  return {f(row.model_x), f(row.model), f(row.model_cond), f(row.limit),     f(row.x),          f(row.x0),
          f(row.history), f(row.noise), f(row.previous),   f(row.history_x), f(row.history_x0), 0};
}

CoefficientRow<double> coefficient_row(const Problem& problem, std::optional<NoiseLevel> before, NoiseLevel now,
                                       NoiseLevel next, int older) {
  const bool second = problem.half == Half::second;
  Row row;
  if (second && next.sigma == 0)
    row.x = 1;  // the last step ends after its first half: its second changes nothing
  else
    row = problem.row().formulas({before, now, next, problem.eta, problem.half, older, problem.prediction});
  const FromOutput x0 = x0_from(problem.prediction, second ? next : now);
  row.model_x = x0.x;
  row.model = x0.output;
  if (problem.guided()) {  // m + w (m_cond - m), Ho and Salimans, "Classifier-Free Diffusion Guidance" (2022)
    row.model_cond = row.model * problem.guidance;
    row.model *= 1 - problem.guidance;
  }
  row.limit = problem.clamp > 0 ? problem.clamp : std::numeric_limits<double>::infinity();
  for (double* coefficient : {&row.x, &row.x0, &row.history, &row.noise}) *coefficient *= 1 - problem.blend;
  row.previous = problem.blend;
  return row;
}

std::vector<CoefficientRow<double>> coefficient_table(const Problem& problem) {
  const auto levels = noise_levels(problem.schedule, static_cast<int>(problem.steps), scaling(problem));
  std::vector<Row> rows;
  for (std::size_t step = 0; step + 1 < levels.size(); ++step)
    rows.push_back(coefficient_row(problem, step == 0 ? std::nullopt : std::optional(levels[step - 1]), levels[step],
                                   levels[step + 1]));
  return rows;
}

}  // namespace noisefloor::sampler_step
