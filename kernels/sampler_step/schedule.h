// Noise schedules, in double: how much signal (alpha) and noise (sigma) a latent x = alpha * x0 + sigma * noise holds
// at each step of a sampler. Pure host code.
#pragma once

#include <vector>

namespace noisefloor::sampler_step {

// linear         beta from 1e-4 to 0.02 over 1000 training steps (Ho et al., "Denoising Diffusion Probabilistic
// Models", 2020) scaled_linear  sqrt(beta) linear, beta from 0.00085 to 0.012 (Rombach et al., "Latent Diffusion
// Models", 2022) cosine         alpha_bar(t) = cos^2((t/T + s) / (1 + s) * pi/2) / alpha_bar(0), s = 0.008, beta at
// most 0.999
//                (Nichol and Dhariwal, "Improved Denoising Diffusion Probabilistic Models", 2021)
// karras         sigma_i = (max^(1/rho) + i/(n-1) (min^(1/rho) - max^(1/rho)))^rho, sigma from 80 to 0.002, rho = 7
//                (Karras et al., "Elucidating the Design Space of Diffusion-Based Generative Models", 2022, eq. 5)
enum class Schedule { linear, scaled_linear, cosine, karras };
inline constexpr const char* kScheduleNames[] = {"linear", "scaled_linear", "cosine", "karras"};

inline constexpr int kTrainingSteps = 1000;

// alpha_bar_t = prod_{s <= t} (1 - beta_s), kTrainingSteps values. Throws std::invalid_argument for karras, which has
// no betas.
std::vector<double> cumulative_alphas(Schedule schedule);

// sqrt((1 - alpha_bar) / alpha_bar) of the same timesteps, rising: noise over signal.
std::vector<double> training_sigmas(Schedule schedule);

// Which training timesteps are visited (Lin et al., "Common Diffusion Noise Schedules and Sample Steps are Flawed",
// 2023, table 2), of S steps over T = kTrainingSteps:
// linspace       from T - 1 down to 0, rounded to the nearest even; one step starts at T - 1
// leading        multiples of floor(T / S), from 0 up
// trailing       T - T / S i - 1, rounded likewise
enum class Spacing { linspace, leading, trailing };
inline constexpr const char* kSpacingNames[] = {"linspace", "leading", "trailing"};

// Noisiest first. `offset` is added to those of `leading`. Of a part of the training steps: `training` of them from
// `first` on. Throws std::invalid_argument where one lies beyond the last of them.
std::vector<int> timesteps(int steps, Spacing spacing = Spacing::linspace, int offset = 0, int first = 0,
                           int training = kTrainingSteps);

// steps + 1 values; the last is 0.
std::vector<double> karras_sigmas(int steps, double sigma_min = 0.002, double sigma_max = 80, double rho = 7);

struct NoiseLevel {
  double alpha = 1;
  double sigma = 0;
};

// variance_preserving: alpha^2 + sigma^2 = 1. variance_exploding: alpha = 1 (the latents divided by alpha).
enum class Scaling { variance_preserving, variance_exploding };

// The levels that a sampler of `steps` steps visits: steps + 1 of them, the last without noise. Throws
// std::invalid_argument for karras with variance_preserving.
std::vector<NoiseLevel> noise_levels(Schedule schedule, int steps, Scaling scaling);

}  // namespace noisefloor::sampler_step
