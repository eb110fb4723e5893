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

namespace noisefloor::pipeline {

struct SamplingOptions {
  sampler_step::Solver solver = sampler_step::Solver::edm_heun;
  sampler_step::Schedule schedule = sampler_step::Schedule::karras;
  int steps = 18;
  double sigma_min = 0.002, sigma_max = 80, rho = 7;  // karras
  // Of the other schedules: which training timesteps are visited, and whether the last step ends without noise or, as
  // Stable Diffusion's DDIM does, at the level of timestep 0.
  sampler_step::Spacing spacing = sampler_step::Spacing::linspace;
  int offset = 0;
  bool ends_noisy = false;
  double eta = 0;       // of solvers with it
  double churn = 0;     // of solvers with it: S_churn of Karras et al., with S_min 0, S_max infinite, S_noise 1
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
  double churned_from = 0;                                     // the level before churn; equal to sigma without
  sampler_step::CoefficientRow<double> row;                    // of the step, or of its first half
  std::optional<sampler_step::CoefficientRow<double>> second;  // heun's second half
  std::vector<double> older;                                   // coefficients of what older steps kept, newest first
};

// The steps of a schedule, noisiest first. Throws InvalidInput naming the option and its range: steps below 1 or more
// than a schedule of training steps has, an offset beyond its timesteps, sigma_min not below sigma_max, eta or churn
// for a solver that has none, a number that is not finite, levels beyond fp32, a seed of 2^63 or more.
std::vector<StepPlan> plan_steps(const SamplingOptions& options, sampler_step::Prediction prediction);

// How often they ask the network.
std::int64_t calls_of(std::span<const StepPlan> steps);

// The training timestep of a noise level under a schedule, fractional between two: what a noise predictor is told of a
// sigma that its schedule does not have.
double timestep_of(double sigma, sampler_step::Schedule schedule);

}  // namespace noisefloor::pipeline
