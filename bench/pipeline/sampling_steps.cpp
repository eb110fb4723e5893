#include "bench/pipeline/sampling_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

using networks::NetworkInfo;
using sampler_step::CoefficientRow;
using sampler_step::NoiseLevel;
using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::SolverRow;
using sampler_step::Spacing;

void require(bool holds, const std::string& message) {
  if (!holds) throw InvalidInput(message);
}

std::string samplers(bool (*so)(const SolverRow&)) {
  const std::vector<std::string> names = sampler_step::solvers_where(so);
  return (names.size() == 1 ? "the sampler " : "the samplers ") + listed(names, "and");
}

void check(const SamplingOptions& options) {
  for (const auto& [option, value] :
       {std::pair{"--sampler sigma_min=", options.sigma_min.value_or(0)},
        std::pair{"--sampler sigma_max=", options.sigma_max.value_or(0)}, std::pair{"--sampler rho=", options.rho},
        std::pair{"--sampler eta=", options.eta}, std::pair{"--sampler churn=", options.churn},
        std::pair{"--guidance ", options.guidance}, std::pair{"--guidance ", options.first_guidance.value_or(0)},
        std::pair{"--sampler clamp=", options.clamp}})
    require(std::isfinite(value), fmt::format("{}{}: must be a finite number", option, value));
  constexpr std::int64_t kMostSeed = std::numeric_limits<std::int64_t>::max();
  require(options.seed <= static_cast<std::uint64_t>(kMostSeed),
          fmt::format("--seed {}: the range is 0 to {}", options.seed, kMostSeed));
  require(options.cache_every >= 1, fmt::format("--cache every={}: must be 1 or more", options.cache_every));
  require(options.eta >= 0 && options.eta <= 1, fmt::format("--sampler eta={}: the range is 0 to 1", options.eta));
  require(options.eta == 0 || options.row().takes_eta(),
          "--sampler eta= is for " + samplers([](const SolverRow& row) { return row.takes_eta(); }));
  require(options.churn >= 0, fmt::format("--sampler churn={}: must not be negative", options.churn));
  require(options.churn == 0 || options.row().churns,
          "--sampler churn= is for " + samplers([](const SolverRow& row) { return row.churns; }));
}

// On the device a step's numbers are floats.
void check(const StepPlan& step, std::size_t number) {
  const auto finite = [](float value) { return std::isfinite(value); };
  const auto finite_row = [&](const CoefficientRow<double>& row) {  // its limit is infinite where there is none
    const sampler_step::Coefficients c = rounded(row);
    return finite(c.model_x) && finite(c.model) && finite(c.model_cond) && finite(c.x) && finite(c.x0) &&
           finite(c.history) && finite(c.noise) && finite(c.previous) && finite(c.history_x) && finite(c.history_x0);
  };
  require(finite(static_cast<float>(step.sigma)) && static_cast<float>(step.sigma) > 0 && finite_row(step.row) &&
              (!step.second || finite_row(*step.second)),
          fmt::format("step {}: noise level {}, with what follows from it, is beyond the range of fp32; change "
                      "sigma_min=, sigma_max= or rho= of --sampler",
                      number, step.sigma));
}

// The level as the solver's formulas want it.
NoiseLevel level_of(double sigma, const SolverRow& solver) {
  if (solver.latents != SolverRow::Latents::preserving) return {1, sigma};
  const double alpha = 1 / std::sqrt(1 + sigma * sigma);
  return {alpha, sigma * alpha};
}

// A row for latents x' = alpha x, as one for x: the prediction is taken at x' = alpha x, and what comes out is divided
// by the next level's alpha. The noise that a network predicts is the same in both, and so is what is kept.
CoefficientRow<double> carried_over(CoefficientRow<double> row, NoiseLevel now, NoiseLevel next) {
  row.model_x *= now.alpha;
  row.x *= now.alpha / next.alpha;
  row.x0 /= next.alpha;
  row.noise /= next.alpha;
  row.history /= next.alpha;
  row.history_x *= now.alpha;
  return row;
}

// ---- which levels a loop visits, and what its network is told of them

// Levels that are one, computed in two ways.
constexpr double kRounding = 1e-9;

// The timesteps of a schedule whose levels a loop may visit: of all, those from `first` on.
struct Timesteps {
  std::vector<double> sigmas;
  int first = 0, count = 0;

  // Between two, in a straight line.
  double sigma(double timestep) const {
    const auto below = static_cast<std::size_t>(timestep);
    const double part = timestep - static_cast<double>(below);
    return part == 0 ? sigmas[below] : sigmas[below] + part * (sigmas[below + 1] - sigmas[below]);
  }
};

NetworkInfo::Levels levels_within(const SamplingOptions& options, const NetworkInfo& info) {
  const NetworkInfo::Levels trained = info.trained_levels();
  const NetworkInfo::Levels levels{options.sigma_min.value_or(trained.min), options.sigma_max.value_or(trained.max)};
  if (!(levels.min > 0 && levels.min < levels.max))
    throw InvalidInput(fmt::format(
        "--sampler sigma_min={},sigma_max={}: the first must be above 0 and below the second", levels.min, levels.max));
  return levels;
}

// Also where only the schedule is the network's own, and its betas are a checkpoint's.
Timesteps timesteps_within(const NetworkInfo::Levels& levels, Schedule schedule, const NetworkInfo& info) {
  Timesteps all{schedule == info.schedule ? info.training_sigmas() : sampler_step::training_sigmas(schedule)};
  const auto first = std::ranges::lower_bound(all.sigmas, levels.min * (1 - kRounding));
  const auto end = std::ranges::upper_bound(all.sigmas, levels.max * (1 + kRounding));
  all.first = static_cast<int>(first - all.sigmas.begin());
  all.count = std::max(0, static_cast<int>(end - first));
  return all;
}

// Of diffusers' DPM-Solver++ one more is spaced than visited; `trailing` has nothing behind its last.
int spaced_timesteps(const SamplingOptions& options) {
  return options.steps + (options.spacing == Spacing::trailing ? 0 : options.row().spare);
}

void require_steps(const SamplingOptions& options, int most, const std::string& why) {
  if (options.steps >= 1 && options.steps <= most) return;
  throw InvalidInput(most < 1 ? fmt::format("--steps {}: there can be none{}", options.steps, why)
                              : fmt::format("--steps {}: the range is 1 to {}{}", options.steps, most, why));
}

void check(const SamplingOptions& options, const NetworkInfo::Levels& levels, const Timesteps& timesteps) {
  const int spare = std::max(spaced_timesteps(options) - options.steps, options.ends_noisy ? 1 : 0);
  require_steps(options, timesteps.count - spare,
                timesteps.count == sampler_step::kTrainingSteps
                    ? ""
                    : fmt::format(": {} timesteps of schedule={} have noise levels from {:.5g} to {:.5g}, which "
                                  "sigma_min= and sigma_max= of --sampler change",
                                  timesteps.count, sampler_step::kScheduleNames[static_cast<int>(options.schedule)],
                                  levels.min, levels.max));
  const int spaced = spaced_timesteps(options), between = timesteps.count / spaced;
  const int most_offset = timesteps.count - 1 - (spaced - 1) * between;
  if (options.offset < 0 || options.offset > most_offset)
    throw InvalidInput(fmt::format("--sampler offset={}: with {} steps the range is 0 to {}", options.offset,
                                   options.steps, most_offset));
}

std::vector<double> visited_timesteps(const SamplingOptions& options, const Timesteps& within) {
  if (options.row().on_sigmas && options.spacing == Spacing::linspace) {
    std::vector<double> times;
    const double last = within.count - 1, between = options.steps > 1 ? last / (options.steps - 1) : 0;
    for (int i = 0; i < options.steps; ++i) times.push_back(within.first + std::max(0.0, last - i * between));
    return times;
  }
  const auto times =
      sampler_step::timesteps(spaced_timesteps(options), options.spacing, options.offset, within.first, within.count);
  return {times.begin(), times.begin() + options.steps};
}

}  // namespace

std::vector<double> visited_sigmas(const SamplingOptions& options, const NetworkInfo& info) {
  const NetworkInfo::Levels levels = levels_within(options, info);
  if (options.schedule == Schedule::karras) {
    require_steps(options, sampler_step::kTrainingSteps, "");
    if (!(options.rho > 0)) throw InvalidInput(fmt::format("--sampler rho={}: must be above 0", options.rho));
    return sampler_step::karras_sigmas(options.steps, levels.min, levels.max, options.rho);
  }
  const Timesteps within = timesteps_within(levels, options.schedule, info);
  check(options, levels, within);
  std::vector<double> sigmas;
  for (const double timestep : visited_timesteps(options, within)) sigmas.push_back(within.sigma(timestep));
  sigmas.push_back(options.ends_noisy ? within.sigma(within.first) : 0);
  return sigmas;
}

double timestep_of(double sigma, const SamplingOptions& options, const NetworkInfo& info) {
  const std::vector<double> sigmas = info.training_sigmas();
  const auto above = std::ranges::lower_bound(sigmas, sigma);
  if (above == sigmas.begin()) return 0;
  if (above == sigmas.end()) return static_cast<double>(sigmas.size() - 1);
  const auto along = [&](double level) { return options.schedule == info.schedule ? level : std::log(level); };
  const double low = along(*(above - 1)), high = along(*above);
  const double timestep = static_cast<double>(above - sigmas.begin()) - (high - along(sigma)) / (high - low);
  return options.row().whole_timesteps ? std::nearbyint(timestep) : timestep;
}

double first_deviation(double sigma, const SamplingOptions& options, const NetworkInfo& info) {
  const bool any_level = options.schedule == Schedule::karras && info.schedule == Schedule::karras;
  const bool noise_alone = any_level || (options.row().on_sigmas && options.spacing != Spacing::leading);
  return noise_alone ? sigma : std::hypot(1.0, sigma);
}

std::span<const sampler_step::Half> SamplingOptions::halves() const {
  static constexpr sampler_step::Half kHalves[] = {sampler_step::Half::first, sampler_step::Half::second};
  return std::span(kHalves).first(static_cast<std::size_t>(row().calls_of(0)));
}

sampler_step::Problem formulas(const SamplingOptions& options, Prediction prediction) {
  sampler_step::Problem problem;
  problem.solver = options.solver;
  problem.prediction = prediction;
  problem.guidance = options.guidance_grows() ? 0 : options.guidance;  // grown before a step
  problem.clamp = options.clamp;
  problem.eta = options.eta;
  return problem;
}

std::vector<StepPlan> plan_steps(const SamplingOptions& options, const networks::NetworkInfo& info) {
  check(options);
  const std::vector<double> sigmas = visited_sigmas(options, info);
  require(options.first_step >= 0 && options.first_step < options.steps,
          fmt::format("first step {}: there are {}", options.first_step, options.steps));
  const double most = options.sigma_max.value_or(info.trained_levels().max);
  // Karras et al. 2022, algorithm 2: gamma = min(S_churn / N, sqrt(2) - 1).
  const double gamma = std::min(options.churn / options.steps, std::sqrt(2.0) - 1);
  std::vector<StepPlan> steps;
  sampler_step::Problem problem = formulas(options, info.prediction);
  const auto first = static_cast<std::size_t>(options.first_step);
  for (std::size_t i = first; i + 1 < sigmas.size(); ++i) {
    const std::size_t taken = i - first;
    StepPlan step;
    step.churned_from = sigmas[i];
    step.sigma = std::max(sigmas[i], std::min(sigmas[i] * (1 + gamma), most));
    step.sigma_next = sigmas[i + 1];
    step.timestep = timestep_of(step.sigma, options, info);
    step.timestep_next = timestep_of(step.sigma_next, options, info);
    const NoiseLevel now = level_of(step.sigma, options.row()), next = level_of(step.sigma_next, options.row());
    problem.half = sampler_step::Half::first;
    const bool last = i + 2 == sigmas.size(), lowered = last && options.steps < options.row().lower_order_below;
    const auto before = taken == 0 || lowered ? std::nullopt : std::optional(level_of(sigmas[i - 1], options.row()));
    const int older = taken < 2 ? 0 : std::min(static_cast<int>(taken) - 1, options.row().older);
    step.row = carried_over(coefficient_row(problem, before, now, next, older), now, next);
    if (older > 0) {
      const auto terms =
          options.row().older_terms({before, now, next, options.eta, problem.half, older, info.prediction});
      step.older.assign(terms.begin(), terms.begin() + older);
    }
    const bool twice =
        options.row().calls == 2 || (options.row().calls_of(static_cast<std::int64_t>(taken)) == 2 && !last);
    if (twice && step.sigma_next > 0) {
      problem.half = sampler_step::Half::second;
      step.second = carried_over(coefficient_row(problem, before, now, next), next, next);
    }
    check(step, i);
    steps.push_back(step);
  }
  return steps;
}

std::int64_t calls_of(std::span<const StepPlan> steps) {
  return std::accumulate(steps.begin(), steps.end(), std::int64_t{0},
                         [](std::int64_t calls, const StepPlan& step) { return calls + (step.second ? 2 : 1); });
}

}  // namespace noisefloor::pipeline
