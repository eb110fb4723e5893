#include "kernels/sampler_step/solvers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
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

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kSolvers); ++i)
    if (kSolvers[i].solver != static_cast<Solver>(i) || kSolvers[i].formulas == nullptr) return false;
  return true;
}
static_assert(in_order(), "a row a Solver, in the order of the enumerators, with formulas");

constexpr auto kNames = [] {
  std::array<const char*, std::size(kSolvers)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kSolvers[i].name;
  return names;
}();

NoiseLevel level(double sigma, bool preserving) {
  const double alpha = preserving ? 1 / std::hypot(1.0, sigma) : 1;
  return {alpha, sigma * alpha};
}

// Compares a row with what its formulas give at levels like any others.
class Check {
 public:
  explicit Check(const SolverRow& row) : row_(row) {}

  void run() const {
    hold(row_.calls == 1 || row_.calls == 2, "calls is neither 1 nor 2");
    hold((row_.history == History::first_half) == (row_.calls == 2),
         "two calls, and history of the first half, need each other");
    hold(row_.noise == Noise::never || row_.history == History::none, "kernels take noise or history, not both");
    hold(row_.history != History::none || !row_.keeps_x0, "keeps_x0 without history");
    hold(row_.latents != Latents::preserving || row_.schedule != Schedule::karras, "karras is variance exploding");
    hold(row_.order >= 1, "order is below 1");
    hold(!row_.starts_twice || (row_.calls == 1 && row_.history == History::step_before),
         "starts_twice is for solvers of one call that keep their slope");
    hold((row_.older > 0) == (row_.older_terms != nullptr) && row_.older <= static_cast<int>(OlderTerms{}.size()),
         "older and older_terms need each other");
    hold(!row_.mixes_to_the_end || row_.history == History::step_before,
         "mixes_to_the_end is for history of the step before");
    hold(row_.older == 0 || (row_.latents == Latents::exploding && row_.history == History::step_before),
         "older is for exploding latents and history of the step before");
    for (const bool preserving : {false, true}) {
      if (row_.latents == (preserving ? Latents::exploding : Latents::preserving)) continue;
      for (const double eta : {0.0, 0.5}) run(preserving, eta);
    }
  }

 private:
  void run(bool preserving, double eta) const {
    const NoiseLevel before = level(3, preserving), now = level(2, preserving), next = level(0.7, preserving);
    const Row first = row_.formulas({std::nullopt, now, next, eta});
    const Row inner = row_.formulas({before, now, next, eta});
    const Row alone = row_.formulas({std::nullopt, now, level(0, preserving), eta});
    const Row mixing = row_.formulas({before, now, level(0, preserving), eta});
    const Row& last = row_.mixes_to_the_end ? alone : mixing;
    hold(last.x == 0 && std::fabs(last.x0 - 1) < 1e-12 && last.noise == 0, "the last step does not end at x0");
    for (const Row& row : {first, inner}) {
      hold((row.noise != 0) == stochastic(row_, eta), "noise is not as the formulas have it");
      keeps(row, row_.history != History::none);
    }
    hold(first.history == 0 && last.history == 0, "the first or the last step reads history");
    hold((mixing.history != 0) == row_.mixes_to_the_end, "mixes_to_the_end is not as the formulas have it");
    hold((inner.history != 0) == (row_.history == History::step_before), "history is not as the formulas have it");
    if (row_.calls_of(0) == 1) return;
    const Row second = row_.formulas({std::nullopt, now, next, eta, Half::second});
    hold(second.history != 0 && second.noise == 0, "the second half reads no history, or adds noise");
    keeps(second, false);
  }
  void keeps(const Row& row, bool expected) const {
    hold((row.history_x != 0 || row.history_x0 != 0) == expected, "history is not as the formulas keep it");
    hold(!expected || (row.history_x == 0 && row.history_x0 == 1) == row_.keeps_x0, "keeps_x0 is not so");
  }
  void hold(bool holds, const char* otherwise) const {
    if (!holds) throw std::logic_error(std::string("solver ") + row_.name + ": " + otherwise);
  }

  const SolverRow& row_;
};

}  // namespace

std::span<const SolverRow> solvers() {
  static const bool checked = [] {
    for (const SolverRow& row : kSolvers) check_solver(row);
    return true;
  }();
  (void)checked;
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

void check_solver(const SolverRow& row) {
  Check(row).run();
}

}  // namespace noisefloor::sampler_step
