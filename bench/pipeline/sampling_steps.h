// What is asked of a sampling loop, and what each of its steps does.
//
// Latents are x0 + sigma noise throughout ("variance exploding"), in fp32. Samplers that their papers write for
// variance-preserving latents x' = alpha x, alpha = 1 / sqrt(1 + sigma^2), have their coefficients carried over.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/sampler_step/coefficients.h"
#include "kernels/sampler_step/sampler_step.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

struct SamplingOptions {
  sampler_step::Solver solver = sampler_step::Solver::edm_heun;
  sampler_step::Schedule schedule = sampler_step::Schedule::karras;
  int steps = 18;
  std::optional<double> sigma_min = {}, sigma_max = {};  // that the levels stay within: those of training if not given
  double rho = 7;                                        // karras
  // Of the other schedules: which training timesteps are visited, and whether the last step ends without noise or, as
  // Stable Diffusion's DDIM does, at the level of the first of them.
  sampler_step::Spacing spacing = sampler_step::Spacing::linspace;
  int offset = 0;
  bool ends_noisy = false;
  double eta = 0;  // of solvers with it
  // Of solvers with it: S_churn of Karras et al., with S_min 0, S_noise 1; no level is raised beyond the largest.
  double churn = 0;
  double guidance = 0;  // 0: one call of the network a step
  // Of a video's first frame; it grows in equal steps to `guidance` at the last one.
  std::optional<double> first_guidance = {};
  double clamp = 0;  // of x0; 0: not at all
  std::uint64_t seed = 0;
  int first_step = 0;   // of the schedule's: a picture that begins on the way, from another one
  int cache_every = 1;  // one in so many calls is whole; the others take what the network keeps (Network::kept)

  std::span<const sampler_step::Half> halves() const;  // of a step: each asks the network once
  bool guidance_grows() const { return guidance != 0 && first_guidance.has_value(); }
  const sampler_step::SolverRow& row() const { return sampler_step::row_of(solver); }
  bool draws_in_steps() const { return sampler_step::stochastic(row(), eta); }
  bool draws_noise() const { return draws_in_steps() || churn > 0; }  // on the way, beside that of the start
};

// The solver's formulas as a problem, without sizes, step and noise.
sampler_step::Problem formulas(const SamplingOptions& options, sampler_step::Prediction prediction);

// What one step does, from host numbers alone. `sigma` is where the network is asked, after churn.
struct StepPlan {
  double sigma = 0, sigma_next = 0;
  double timestep = 0, timestep_next = 0;                      // that the network is told of them (timestep_of)
  double churned_from = 0;                                     // the level before churn; equal to sigma without
  sampler_step::CoefficientRow<double> row;                    // of the step, or of its first half
  std::optional<sampler_step::CoefficientRow<double>> second;  // heun's second half
  std::vector<double> older;                                   // coefficients of what older steps kept, newest first
};

// The steps of a schedule over a network, noisiest first. Throws InvalidInput naming the option and its range: steps
// below 1 or more than a schedule has timesteps within the levels, an offset beyond its timesteps, sigma_min not below
// sigma_max, eta or churn for a solver that has none, a number that is not finite, levels beyond fp32, a seed of 2^63
// or more.
std::vector<StepPlan> plan_steps(const SamplingOptions& options, const networks::NetworkInfo& info);

// The levels that the steps begin at, and the one that the last ends at: karras from the largest to the least that the
// network was trained at (or what is asked for), any other schedule at those of its timesteps whose levels lie between
// them. Throws as plan_steps does.
std::vector<double> visited_sigmas(const SamplingOptions& options, const networks::NetworkInfo& info);
// The training timestep that a network is told of a level, fractional between two of those that it was trained at:
// between their logarithms, as diffusers has it, but in a straight line between two of its own schedule. 0 for a
// network that was trained at any level.
double timestep_of(double sigma, const SamplingOptions& options, const networks::NetworkInfo& info);
// Of the first latents, at the first level: x0 is there beside the noise where a schedule was trained on latents of
// unit variance; noise alone where it is so large that x0 does not count (EDM's karras), and by solvers that begin so.
double first_deviation(double sigma, const SamplingOptions& options, const networks::NetworkInfo& info);

// How often they ask the network.
std::int64_t calls_of(std::span<const StepPlan> steps);

}  // namespace noisefloor::pipeline
