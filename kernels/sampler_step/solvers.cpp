#include "kernels/sampler_step/solvers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace noisefloor::sampler_step {
namespace {

using Row = CoefficientRow<double>;
using Latents = SolverRow::Latents;
using Noise = SolverRow::Noise;
using History = SolverRow::History;

double square(double value) {
  return value * value;
}

// 1 - alpha_bar / alpha_bar_next of variance-preserving levels, from alpha or sigma, whichever is small and so has its
// digits. Not below 0, where both are one level, rounded apart.
double beta_between(NoiseLevel now, NoiseLevel next) {
  if (next.alpha < next.sigma) return std::max(0.0, 1 - square(now.alpha / next.alpha));
  return std::max(0.0, (square(now.sigma) - square(next.sigma)) / square(next.alpha));
}

// Ho et al. 2020, eq. 6 and 7, between two levels of a subsequence: the posterior q(x_next | x, x0) with
// a = alpha_bar / alpha_bar_next in the place of alpha_t, beta = 1 - a, and its own variance
// beta_tilde = (1 - alpha_bar_next) / (1 - alpha_bar) beta.
Row ddpm(const SolverStep& step) {
  const auto& [before, now, next, eta, half, older, prediction] = step;
  const double a = square(now.alpha / next.alpha);
  const double beta = beta_between(now, next);
  Row row;
  row.x0 = next.alpha * beta / square(now.sigma);
  row.x = std::sqrt(a) * square(next.sigma) / square(now.sigma);
  row.noise = next.sigma / now.sigma * std::sqrt(beta);
  return row;
}

// Song et al., "Denoising Diffusion Implicit Models" (2021), eq. 12 and 16:
//   x_next = alpha_next x0 + sqrt(sigma_next^2 - s^2) noise(x, x0) + s z,  noise(x, x0) = (x - alpha x0) / sigma,
//   s = eta sigma_next / sigma sqrt(1 - alpha_bar / alpha_bar_next).
// The noise is taken from the clamped x0, so that x0 and noise agree.
Row ddim(const SolverStep& step) {
  const auto& [before, now, next, eta, half, older, prediction] = step;
  const double a = square(now.alpha / next.alpha);
  const double beta = beta_between(now, next);
  const double s = eta * next.sigma / now.sigma * std::sqrt(beta);
  // sqrt(sigma_next^2 - s^2), without its cancellation: 1 - sigma^2 = a (1 - sigma_next^2).
  const double direction = next.sigma / now.sigma * std::sqrt((1 - square(eta)) * beta + a * square(next.sigma));
  Row row;
  row.x = direction / now.sigma;
  row.x0 = next.alpha - direction * now.alpha / now.sigma;
  row.noise = s;
  return row;
}

// Karras et al. 2022, algorithm 1, lines 4 and 5: slope d = (x - x0) / sigma, x_next = x + (sigma_next - sigma) d.
Row edm_euler(const SolverStep& step) {
  Row row;
  row.x = step.next.sigma / step.now.sigma;
  row.x0 = 1 - step.next.sigma / step.now.sigma;
  return row;
}

// First half: the Euler step, which keeps its slope. Second half, lines 7 and 8, on the proposal x' = x + h d with
// h = sigma_next - sigma and d' = (x' - x0') / sigma_next:
//   x_next = x + h (d + d') / 2 = x' + h/2 (d' - d),
// which needs the proposal and the slope, and the x before them no more.
Row edm_heun(const SolverStep& step) {
  const auto& [before, now, next, eta, half, older, prediction] = step;
  if (half == Half::first) {
    Row row = edm_euler(step);
    row.history_x = 1 / now.sigma;
    row.history_x0 = -1 / now.sigma;
    return row;
  }
  const double half_h = (next.sigma - now.sigma) / 2;
  Row row;
  row.x = 1 + half_h / next.sigma;
  row.x0 = -half_h / next.sigma;
  row.history = -half_h;
  return row;
}

// Lu et al., "DPM-Solver++" (2022), algorithm 2, with lambda = log(alpha / sigma), h = lambda_next - lambda,
// r = h_before / h:
//   D = (1 + 1/(2r)) x0 - 1/(2r) x0_before,  x_next = sigma_next / sigma x - alpha_next (exp(-h) - 1) D.
// First order (D = x0) where nothing was kept before, and into sigma_next = 0, where h is infinite.
Row dpmpp_2m(const SolverStep& step) {
  const auto& [before, now, next, eta, half, older, prediction] = step;
  const double decay = next.sigma * now.alpha / (next.alpha * now.sigma);  // exp(-h)
  const double scale = next.alpha * (1 - decay);
  Row row;
  row.x = next.sigma / now.sigma;
  row.x0 = scale;
  row.history_x0 = 1;
  if (!before || next.sigma == 0) return row;
  const double h = -std::log(decay);
  const double h_before = std::log(now.alpha / now.sigma) - std::log(before->alpha / before->sigma);
  const double half_over_r = h / (2 * h_before);
  row.x0 = scale * (1 + half_over_r);
  row.history = -scale * half_over_r;
  return row;
}

// Of the outputs of steps as long as each other, the newest first (Adams and Bashforth).
constexpr double kOutputWeights[][4] = {
    {1}, {3.0 / 2, -1.0 / 2}, {23.0 / 12, -16.0 / 12, 5.0 / 12}, {55.0 / 24, -59.0 / 24, 37.0 / 24, -9.0 / 24}};

// What PNDM mixes: a network's outputs, noise or v, as diffusers does; of x0 the noise that it stands for.
FromOutput mixed(const SolverStep& step, NoiseLevel at) {
  return x0_from(step.prediction == Prediction::v ? Prediction::v : Prediction::noise, at);
}

// What an output adds to x_next.
double of_output(const SolverStep& step) {
  return (1 - step.next.sigma / step.now.sigma) * mixed(step, step.now).output;
}

// Liu et al., "Pseudo Numerical Methods for Diffusion Models on Manifolds" (2022), eq. 12, with its transfer part (eq.
// 11) on x0 + sigma noise: x_next = r x + (1 - r) x0(x, m), r = sigma_next / sigma, where m is the weighted sum of up
// to four outputs. As diffusers begins it with skip_prk_steps: the first step by two calls. The second of them, on the
// proposal x', has m = (m1 + m2) / 2 from x, which makes x_next = x' + (1 - r) (m2 - m1) / 2 times what an output is
// of x0.
Row pndm(const SolverStep& step) {
  const auto& [before, now, next, eta, half, older, prediction] = step;
  const double scale = of_output(step), rest = 1 - next.sigma / now.sigma;
  Row row;
  if (half == Half::second) {
    const FromOutput second = mixed(step, next);
    row.x = 1 - scale / 2 * second.x / second.output;
    row.x0 = scale / 2 / second.output;
    row.history = -scale / 2;
    return row;
  }
  const FromOutput x0 = mixed(step, now);
  const double* const weights = kOutputWeights[before ? 1 + older : 0];
  row.x = 1 - rest + rest * (1 - weights[0]) * x0.x;
  row.x0 = rest * weights[0];
  row.history = scale * weights[1];
  row.history_x = -x0.x / x0.output;
  row.history_x0 = 1 / x0.output;
  return row;
}

OlderTerms pndm_older(const SolverStep& step) {
  const double scale = of_output(step);
  const double* const weights = kOutputWeights[1 + step.older];
  return {scale * weights[2], scale * weights[3]};
}

constexpr SolverRow kSolvers[] = {
    {.solver = Solver::ddpm,
     .name = "ddpm",
     .source = "Ho et al. 2020, the posterior",
     .latents = Latents::preserving,
     .noise = Noise::always,
     .schedule = Schedule::linear,
     .formulas = ddpm},
    {.solver = Solver::ddim,
     .name = "ddim",
     .source = "Song et al. 2021, eq. 12",
     .latents = Latents::preserving,
     .noise = Noise::with_eta,
     .schedule = Schedule::linear,
     .formulas = ddim,
     .ends_as_trained = true},
    {.solver = Solver::edm_euler,
     .name = "edm_euler",
     .source = "Karras et al. 2022, algorithm 2 without its second half",
     .churns = true,
     .formulas = edm_euler,
     .on_sigmas = true},
    {.solver = Solver::edm_heun,
     .name = "edm_heun",
     .source = "Karras et al. 2022, algorithm 2",
     .history = History::first_half,
     .calls = 2,
     .order = 2,
     .churns = true,
     .formulas = edm_heun,
     .on_sigmas = true},
    {.solver = Solver::dpmpp_2m,
     .name = "dpmpp_2m",
     .source = "Lu et al. 2022 (DPM-Solver++), algorithm 2",
     .latents = Latents::either,
     .history = History::step_before,
     .keeps_x0 = true,
     .order = 2,
     .spare = 1,
     .formulas = dpmpp_2m,
     .whole_timesteps = true,
     .lower_order_below = 15},
    {.solver = Solver::pndm,
     .name = "pndm",
     .source = "Liu et al. 2022 (PNDM), eq. 12, as diffusers begins it",
     .history = History::step_before,
     .order = 2,
     .formulas = pndm,
     .starts_twice = true,
     .older = 2,
     .older_terms = pndm_older,
     .ends_as_trained = true,
     .mixes_to_the_end = true},
};

// What kernels and the sampling loop count on; tests/kernels/sampler_step/solvers_test.cpp holds the rest of a row to
// its formulas.
constexpr bool can_run(const SolverRow& row) {
  const bool keeps = row.history == History::step_before;
  return row.formulas != nullptr && row.order >= 1 && (row.calls == 1 || row.calls == 2) &&
         (row.history == History::first_half) == (row.calls == 2) &&
         (row.noise == Noise::never || row.history == History::none) &&  // kernels take noise or history, not both
         (row.latents != Latents::preserving || row.schedule != Schedule::karras) &&
         (row.history != History::none || !row.keeps_x0) && (keeps || !row.mixes_to_the_end) &&
         (!row.starts_twice || (row.calls == 1 && keeps)) && (row.older > 0) == (row.older_terms != nullptr) &&
         row.older <= static_cast<int>(OlderTerms{}.size()) &&
         (row.older == 0 || (row.latents == Latents::exploding && keeps));
}
constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kSolvers); ++i)
    if (kSolvers[i].solver != static_cast<Solver>(i)) return false;
  return true;
}
static_assert(std::ranges::all_of(kSolvers, can_run) && in_order());

constexpr auto kNames = [] {
  std::array<const char*, std::size(kSolvers)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kSolvers[i].name;
  return names;
}();

}  // namespace

std::span<const SolverRow> solvers() {
  return kSolvers;
}

const SolverRow& row_of(Solver solver) {
  return solvers()[static_cast<std::size_t>(solver)];
}

std::span<const char* const> solver_names() {
  return kNames;
}

std::vector<std::string> solvers_where(bool (*so)(const SolverRow&)) {
  std::vector<std::string> names;
  for (const SolverRow& row : solvers())
    if (so(row)) names.emplace_back(row.name);
  return names;
}

bool stochastic(const SolverRow& row, double eta) {
  return row.noise == Noise::always || (row.takes_eta() && eta > 0);
}

}  // namespace noisefloor::sampler_step
