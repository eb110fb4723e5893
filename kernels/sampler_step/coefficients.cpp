#include "kernels/sampler_step/coefficients.h"

#include <cmath>
#include <limits>

#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {
namespace {

using Row = CoefficientRow<double>;

double square(double value) {
  return value * value;
}

// x0 from x and the model's output at level `at`. The v of Salimans and Ho, "Progressive Distillation" (2022), is
// defined on variance-preserving latents: x / s with s^2 = alpha^2 + sigma^2, which makes x0 = alpha/s^2 x - sigma/s v
// at any scaling.
void set_prediction(Row& row, Prediction prediction, NoiseLevel at) {
  switch (prediction) {
    case Prediction::noise:  // x = alpha x0 + sigma noise
      row.model_x = 1 / at.alpha;
      row.model = -at.sigma / at.alpha;
      return;
    case Prediction::x0:
      row.model_x = 0;
      row.model = 1;
      return;
    case Prediction::v: {
      const double variance = square(at.alpha) + square(at.sigma);
      row.model_x = at.alpha / variance;
      row.model = -at.sigma / std::sqrt(variance);
      return;
    }
  }
}

// 1 - alpha_bar / alpha_bar_next of variance-preserving levels, from alpha or sigma, whichever is small and so has its
// digits.
double beta_between(NoiseLevel now, NoiseLevel next) {
  if (next.alpha < next.sigma) return 1 - square(now.alpha / next.alpha);
  return (square(now.sigma) - square(next.sigma)) / square(next.alpha);
}

// Ho et al. 2020, eq. 6 and 7, between two levels of a subsequence: the posterior q(x_next | x, x0) with
// a = alpha_bar / alpha_bar_next in the place of alpha_t, beta = 1 - a, and its own variance
// beta_tilde = (1 - alpha_bar_next) / (1 - alpha_bar) beta.
void set_ddpm(Row& row, NoiseLevel now, NoiseLevel next) {
  const double a = square(now.alpha / next.alpha);
  const double beta = beta_between(now, next);
  row.x0 = next.alpha * beta / square(now.sigma);
  row.x = std::sqrt(a) * square(next.sigma) / square(now.sigma);
  row.noise = next.sigma / now.sigma * std::sqrt(beta);
}

// Song et al., "Denoising Diffusion Implicit Models" (2021), eq. 12 and 16:
//   x_next = alpha_next x0 + sqrt(sigma_next^2 - s^2) noise(x, x0) + s z,  noise(x, x0) = (x - alpha x0) / sigma,
//   s = eta sigma_next / sigma sqrt(1 - alpha_bar / alpha_bar_next).
// The noise is taken from the clamped x0, so that x0 and noise agree.
void set_ddim(Row& row, NoiseLevel now, NoiseLevel next, double eta) {
  const double a = square(now.alpha / next.alpha);
  const double beta = beta_between(now, next);
  const double s = eta * next.sigma / now.sigma * std::sqrt(beta);
  // sqrt(sigma_next^2 - s^2), without its cancellation: 1 - sigma^2 = a (1 - sigma_next^2).
  const double direction = next.sigma / now.sigma * std::sqrt((1 - square(eta)) * beta + a * square(next.sigma));
  row.x = direction / now.sigma;
  row.x0 = next.alpha - direction * now.alpha / now.sigma;
  row.noise = s;
}

// Karras et al. 2022, algorithm 1, lines 4 and 5: slope d = (x - x0) / sigma, x_next = x + (sigma_next - sigma) d.
void set_edm_euler(Row& row, NoiseLevel now, NoiseLevel next) {
  row.x = next.sigma / now.sigma;
  row.x0 = 1 - next.sigma / now.sigma;
}

// First half: the Euler step, which keeps its slope.
void set_edm_heun_first(Row& row, NoiseLevel now, NoiseLevel next) {
  set_edm_euler(row, now, next);
  row.history_x = 1 / now.sigma;
  row.history_x0 = -1 / now.sigma;
}

// Second half, lines 7 and 8, on the proposal x' = x + h d with h = sigma_next - sigma and d' = (x' - x0') /
// sigma_next:
//   x_next = x + h (d + d') / 2 = x' + h/2 (d' - d),
// which needs the proposal and the slope, and the x before them no more.
void set_edm_heun_second(Row& row, NoiseLevel now, NoiseLevel next) {
  const double half_h = (next.sigma - now.sigma) / 2;
  row.x = 1 + half_h / next.sigma;
  row.x0 = -half_h / next.sigma;
  row.history = -half_h;
}

// Lu et al., "DPM-Solver++" (2022), algorithm 2, with lambda = log(alpha / sigma), h = lambda_next - lambda,
// r = h_before / h:
//   D = (1 + 1/(2r)) x0 - 1/(2r) x0_before,  x_next = sigma_next / sigma x - alpha_next (exp(-h) - 1) D.
// First order (D = x0) where nothing was kept before, and into sigma_next = 0, where h is infinite.
void set_dpmpp_2m(Row& row, NoiseLevel before, NoiseLevel now, NoiseLevel next, bool second_order) {
  const double decay = next.sigma * now.alpha / (next.alpha * now.sigma);  // exp(-h)
  const double scale = next.alpha * (1 - decay);
  row.x = next.sigma / now.sigma;
  row.x0 = scale;
  row.history_x0 = 1;
  if (!second_order) return;
  const double h = -std::log(decay);
  const double h_before = std::log(now.alpha / now.sigma) - std::log(before.alpha / before.sigma);
  const double half_over_r = h / (2 * h_before);
  row.x0 = scale * (1 + half_over_r);
  row.history = -scale * half_over_r;
}

void set_solver(Row& row, const Problem& problem, std::optional<NoiseLevel> before, NoiseLevel now, NoiseLevel next) {
  switch (problem.solver) {
    case Solver::ddpm:
      return set_ddpm(row, now, next);
    case Solver::ddim:
      return set_ddim(row, now, next, problem.eta);
    case Solver::edm_euler:
      return set_edm_euler(row, now, next);
    case Solver::edm_heun:
      if (problem.half == Half::first) return set_edm_heun_first(row, now, next);
      if (next.sigma > 0) return set_edm_heun_second(row, now, next);
      row.x = 1;  // the last step ends after its first half: its second changes nothing
      return;
    case Solver::dpmpp_2m:
      return set_dpmpp_2m(row, before.value_or(now), now, next, before && next.sigma > 0);
  }
}

}  // namespace

CoefficientRow<double> coefficient_row(const Problem& problem, std::optional<NoiseLevel> before, NoiseLevel now,
                                       NoiseLevel next) {
  Row row;
  const bool on_proposal = problem.solver == Solver::edm_heun && problem.half == Half::second;
  set_prediction(row, problem.prediction, on_proposal ? next : now);
  if (problem.guided()) {  // m + w (m_cond - m), Ho and Salimans, "Classifier-Free Diffusion Guidance" (2022)
    row.model_cond = row.model * problem.guidance;
    row.model *= 1 - problem.guidance;
  }
  row.limit = problem.clamp > 0 ? problem.clamp : std::numeric_limits<double>::infinity();
  set_solver(row, problem, before, now, next);
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
