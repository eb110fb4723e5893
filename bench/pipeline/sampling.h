// Samplers over a network: from noise to pictures.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/sampling_steps.h"
#include "bench/pipeline/solver_launches.h"
#include "bench/pipeline/step_tables.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::pipeline {

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
  // Called with the number of steps taken so far.
  using Progress = std::function<void(std::size_t steps)>;

  // The solver's own launches run the fastest of our variants, measured here: a recording must find all choices made.
  Sampler(Platform& platform, Executor& executor, const SamplingOptions& options);
  Sampler(const Sampler&) = delete;  // its recordings know where it is
  Sampler& operator=(const Sampler&) = delete;

  // Pictures of `labels` (one an image; ignored by networks without classes), numbered from `first_image`: an image is
  // a function of seed, its number and label, whatever batch it comes in. Blocks. Returns x0 [batch, height, width,
  // channels].
  std::vector<float> run(std::span<const int> labels, std::int64_t first_image, const Observer& observer = {});
  // Of every run() from now on, twice a second or more often: behind each piece of the loop, which is recorded so that
  // a piece takes half a second at most, and at first one step; where an observer watches, behind each step.
  void report_to(Progress progress);
  // First noise of the next batch, of unit variance [batch, height, width, channels], in the place of what is drawn.
  void begin_from(std::vector<float> noise) { given_noise_ = std::move(noise); }
  // For measuring the first step, again and again: prepare() sets labels and first noise, enqueue_first_step() enqueues
  // what run() begins with. The latents that it leaves are of no use; run() starts anew.
  void prepare(std::span<const int> labels);
  Status enqueue_first_step();
  // For whoever puts latents into first_latents() himself: all steps, from there. Not with noise that is drawn on the
  // way. x0 is the last latents divided by last_deviation().
  // Labels, and what is computed once. Of a network with levels ahead that is of this sampler's levels: no other
  // sampler of the executor may run between this and the last enqueue_steps().
  void prepare_steps(std::span<const int> labels);
  Status enqueue_steps();
  void* first_latents() { return latents_[0].data(); }
  const void* last_latents();
  double first_sigma() const { return steps_.front().churned_from; }
  double last_deviation() const;
  const std::vector<float>& initial_noise() const { return noise_; }  // of the last run, unit variance
  std::size_t runners() const { return launches_.runners(); }         // that are kept; at most those of one batch

 private:
  void start(std::int64_t first_image);
  void go_to(std::size_t step);
  void forget_launches();
  void replay_steps(std::int64_t first_image);
  void take_steps(std::size_t begin, std::size_t end, std::int64_t first_image);
  void add_churn(std::size_t step, std::int64_t first_image);
  void add_older(std::size_t step, std::size_t newest_history);
  void compute_once();
  void bind_levels(std::size_t call, bool of_all_calls);
  void denoise(const void* latents);
  void update(std::size_t step, sampler_step::Half half, std::int64_t first_image, const void* x, void* x_next);
  q_sample::Problem churn_problem() const;
  q_sample::Problem older_problem() const;
  q_sample::Problem guidance_problem() const;
  void* prediction();  // of the call that was enqueued last
  sampler_step::Problem problem_of(std::size_t step, sampler_step::Half half, std::int64_t first_image) const;

  Platform* platform_;
  Executor* executor_;
  SamplingOptions options_;
  std::vector<StepPlan> steps_;
  StepTables tables_;
  SolverLaunches launches_;
  struct RecordedSteps {
    std::size_t end;  // the step behind them
    std::unique_ptr<Recording> recording;
  };
  std::vector<RecordedSteps> recordings_;  // of the whole loop, in order
  Progress progress_;
  std::size_t steps_a_report_ = 1;  // as fast as the last ones were
  bool recorded_programmatic_ = false;
  Buffer latents_[2], guided_;
  std::vector<Buffer> history_;  // as many as a step reads, and the one that it writes, in turns
  int current_ = 0;              // of the two of latents
  std::size_t newest_history_ = 0;
  std::size_t call_ = 0;  // of the network, in this loop
  std::vector<float> noise_, given_noise_;
};

}  // namespace noisefloor::pipeline
