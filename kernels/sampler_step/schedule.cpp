#include "kernels/sampler_step/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace noisefloor::sampler_step {
namespace {

double interpolate(double first, double last, int index, int count) {
  return count == 1 ? first : first + (last - first) * index / (count - 1);
}

double cosine_alpha_bar(double fraction) {
  constexpr double kOffset = 0.008;
  const double cosine = std::cos((fraction + kOffset) / (1 + kOffset) * std::numbers::pi / 2);
  return cosine * cosine;
}

double beta(Schedule schedule, int t) {
  switch (schedule) {
    case Schedule::linear:
      return interpolate(1e-4, 0.02, t, kTrainingSteps);
    case Schedule::scaled_linear: {
      const double root = interpolate(std::sqrt(0.00085), std::sqrt(0.012), t, kTrainingSteps);
      return root * root;
    }
    case Schedule::cosine: {
      constexpr double kMaxBeta = 0.999;
      const double now = static_cast<double>(t) / kTrainingSteps;
      const double next = static_cast<double>(t + 1) / kTrainingSteps;
      return std::min(1 - cosine_alpha_bar(next) / cosine_alpha_bar(now), kMaxBeta);
    }
    case Schedule::karras:
      break;
  }
  throw std::invalid_argument("the karras schedule is given by its sigmas, it has no betas");
}

}  // namespace

std::vector<double> cumulative_alphas(Schedule schedule) {
  std::vector<double> alphas;
  double product = 1;
  for (int t = 0; t < kTrainingSteps; ++t) {
    product *= 1 - beta(schedule, t);
    alphas.push_back(product);
  }
  return alphas;
}

std::vector<double> training_sigmas(Schedule schedule) {
  std::vector<double> sigmas = cumulative_alphas(schedule);
  for (double& value : sigmas) value = std::sqrt((1 - value) / value);
  return sigmas;
}

std::vector<int> timesteps(int steps, Spacing spacing, int offset, int first, int training) {
  const auto rounded = [](double time) { return static_cast<int>(std::nearbyint(time)); };
  std::vector<int> result;
  for (int i = 0; i < steps; ++i) {
    if (spacing == Spacing::leading)
      result.push_back(first + (steps - 1 - i) * (training / steps) + offset);
    else if (spacing == Spacing::trailing)
      result.push_back(first + rounded(training - i * (static_cast<double>(training) / steps)) - 1);
    else
      result.push_back(first + rounded(interpolate(training - 1, 0, i, steps)));
  }
  if (result.front() >= first + training || result.back() < first)
    throw std::invalid_argument("an offset beyond the training timesteps");
  return result;
}

std::vector<double> karras_sigmas(int steps, double sigma_min, double sigma_max, double rho) {
  std::vector<double> sigmas;
  for (int i = 0; i < steps; ++i)
    sigmas.push_back(std::pow(interpolate(std::pow(sigma_max, 1 / rho), std::pow(sigma_min, 1 / rho), i, steps), rho));
  sigmas.push_back(0);
  return sigmas;
}

std::vector<NoiseLevel> noise_levels(Schedule schedule, int steps, Scaling scaling) {
  std::vector<NoiseLevel> levels;
  if (schedule == Schedule::karras) {
    if (scaling == Scaling::variance_preserving)
      throw std::invalid_argument("the karras schedule is variance exploding");
    for (const double sigma : karras_sigmas(steps)) levels.push_back({1, sigma});
    return levels;
  }
  const std::vector<double> alphas = cumulative_alphas(schedule);
  for (const int t : timesteps(steps)) {
    const double alpha_bar = alphas[static_cast<std::size_t>(t)];
    if (scaling == Scaling::variance_preserving)
      levels.push_back({std::sqrt(alpha_bar), std::sqrt(1 - alpha_bar)});
    else
      levels.push_back({1, std::sqrt((1 - alpha_bar) / alpha_bar)});
  }
  levels.push_back({1, 0});
  return levels;
}

}  // namespace noisefloor::sampler_step
