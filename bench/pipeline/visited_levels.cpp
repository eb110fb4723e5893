// Which noise levels a sampling loop visits, and what its network is told of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "bench/pipeline/sampling_steps.h"
#include "kernels/core/fields.h"

namespace noisefloor::pipeline {
namespace {

using networks::NetworkInfo;
using sampler_step::Schedule;
using sampler_step::Spacing;

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

}  // namespace noisefloor::pipeline
