// Samplers over a network: from noise to pictures.
//
// Latents are x0 + sigma noise throughout ("variance exploding"), in fp32. Samplers that their papers write for
// variance-preserving latents x' = alpha x, alpha = 1 / sqrt(1 + sigma^2), have their coefficients carried over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline/executor.h"
#include "kernels/q_sample/q_sample.h"
#include "kernels/sampler_step/coefficients.h"
#include "kernels/sampler_step/sampler_step.h"
#include "reports/run/case_id.h"

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

// The training timestep of a noise level under a schedule, fractional between two: what a noise predictor is told of a
// sigma that its schedule does not have.
double timestep_of(double sigma, sampler_step::Schedule schedule);

// A seed for each image's first noise; drawn noise takes seed and image as they are.
std::uint64_t first_noise_seed(std::uint64_t seed, std::int64_t image);

// The most that a Sampler of `network` allocates at once beside its executor: latents, tables, and the measurement of
// its own launches.
std::size_t sampler_bytes(const Network& network, const SamplingOptions& options);

// A sampling loop over one batch, made once and run for every batch of it. What was recorded for one batch is replayed
// for the next where no noise is drawn on the way; launches that draw noise have the images' numbers in them, and are
// recorded for each batch and forgotten before the next.
class Sampler {
 public:
  // Called after a step with its number (from 0; -1 before the first) and the latents' device pointer.
  using Observer = std::function<void(int step, const void* latents)>;

  // The solver's own launches run the fastest of our variants, measured here: a recording must find all choices made.
  Sampler(Platform& platform, Executor& executor, const SamplingOptions& options);
  Sampler(const Sampler&) = delete;  // its recordings know where it is
  Sampler& operator=(const Sampler&) = delete;

  // Pictures of `labels` (one an image; ignored by networks without classes), numbered from `first_image`: an image is
  // a function of seed, its number and label, whatever batch it comes in. Blocks. Returns x0 [batch, height, width,
  // channels].
  std::vector<float> run(std::span<const int> labels, std::int64_t first_image, const Observer& observer = {});
  // First noise of the next batch, of unit variance [batch, height, width, channels], in the place of what is drawn.
  void begin_from(std::vector<float> noise) { given_noise_ = std::move(noise); }
  // For measuring the first step, again and again: prepare() sets labels and first noise, enqueue_first_step() enqueues
  // what run() begins with. The latents that it leaves are of no use; run() starts anew.
  void prepare(std::span<const int> labels);
  Status enqueue_first_step();
  // For whoever puts latents into first_latents() himself: all steps, from there. Not with noise that is drawn on the
  // way. x0 is the last latents divided by last_deviation().
  void prepare_steps(std::span<const int> labels);  // labels, and what is computed once
  Status enqueue_steps();
  void* first_latents() { return latents_[0].data(); }
  const void* last_latents();
  double first_sigma() const { return steps_.front().churned_from; }
  double last_deviation() const;
  const std::vector<float>& initial_noise() const { return noise_; }  // of the last run, unit variance
  std::size_t runners() const { return runners_.size(); }             // that are kept; at most those of one batch

 private:
  void start(std::int64_t first_image);
  void go_to(std::size_t step);
  void forget_launches();
  void replay_steps(std::int64_t first_image);
  void take_steps(std::size_t begin, std::size_t end, std::int64_t first_image);
  void add_churn(std::size_t step, std::int64_t first_image);
  void add_older(std::size_t step, std::size_t newest_history);
  void denoise(const void* latents);
  void update(std::size_t step, sampler_step::Half half, std::int64_t first_image, const void* x, void* x_next);
  q_sample::Problem churn_problem() const;
  q_sample::Problem older_problem() const;
  q_sample::Problem guidance_problem() const;
  void* prediction();  // of the call that was enqueued last
  sampler_step::Problem problem_of(std::size_t step, sampler_step::Half half, std::int64_t first_image) const;
  void choose(const Op& op, const std::string& choice, const AnyProblem& problem);
  void launch(const Op& op, const std::string& choice, const AnyProblem& problem, std::span<void* const> pointers);

  Platform* platform_;
  Executor* executor_;
  SamplingOptions options_;
  std::vector<StepPlan> steps_;
  struct Choice {
    ImplementationPtr implementation;
    std::optional<double> warm_us;
  };
  std::map<std::string, Choice> choices_;                // of solver halves, churn, older slopes and guidance
  std::map<ProblemId, std::unique_ptr<Ready>> runners_;  // each problem is of one choice: its half is a field
  std::vector<std::unique_ptr<Recording>> recordings_;   // of the whole loop, in order
  bool recorded_programmatic_ = false;
  Buffer latents_[2], rows_, second_rows_, churn_levels_, older_levels_, sigmas_, timesteps_, guided_, guidance_levels_;
  std::vector<Buffer> history_;  // as many as a step reads, and the one that it writes, in turns
  int current_ = 0;              // of the two of latents
  std::size_t newest_history_ = 0;
  std::size_t call_ = 0;  // of the network, in this loop
  std::vector<float> noise_, given_noise_;
};

}  // namespace noisefloor::pipeline
