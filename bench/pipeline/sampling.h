// Samplers over a network: from noise to pictures.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/sampling_steps.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::pipeline {

// The numbers of a sampling loop that depend on its schedule alone, computed once and kept on the device.
class StepTables {
 public:
  StepTables(Platform& platform, const Network& network, const SamplingOptions& options,
             std::span<const StepPlan> steps);
  // What one allocates.
  static std::size_t bytes(const Network& network, const SamplingOptions& options);

  // Coefficients of all steps [steps, kRowLength], of the op sampler_step.
  void* rows(sampler_step::Half half) const {
    return (half == sampler_step::Half::first ? rows_ : second_rows_).data();
  }
  // A pair of levels an image (of guidance: a frame), of the op q_sample.
  void* churn(std::size_t step) const { return at(churn_, step * levels_bytes_); }
  void* older(std::size_t step, std::size_t k) const {  // what the k-th step before the one before kept
    return at(older_, (step * older_a_step_ + k) * levels_bytes_);
  }
  void* guidance() const { return guidance_.data(); }
  // What a call of the network is told, a number an image of the call.
  void* sigmas(std::size_t call) const { return at(sigmas_, call * told_bytes_); }
  void* timesteps(std::size_t call) const { return at(timesteps_, call * told_bytes_); }  // of networks that take them

 private:
  static void* at(const Buffer& buffer, std::size_t bytes) { return static_cast<char*>(buffer.data()) + bytes; }
  std::size_t levels_bytes_, told_bytes_, older_a_step_;
  Buffer rows_, second_rows_, churn_, older_, guidance_, sigmas_, timesteps_;
};

// A problem of what a sampling loop launches beside its network: solver steps, noise, sums.
struct SolverProblem {
  SolverProblem(const sampler_step::Problem& step) : op(find_op("sampler_step")), problem(step) {}
  SolverProblem(const q_sample::Problem& mixing) : op(find_op("q_sample")), problem(mixing) {}
  const Op* op;
  AnyProblem problem;
};
inline std::size_t trial_bytes(const SolverProblem& solver) {
  return trial_bytes(*solver.op, solver.problem, DType::fp32);
}
// x a + y b, of two levels an image, or a frame.
q_sample::Problem mixing_problem(const Network& network, bool of_frames = false);

class SolverLaunches {
 public:
  SolverLaunches(Platform& platform, Executor& executor) : platform_(&platform), executor_(&executor) {}

  // The fastest of our variants for a problem, measured here; `name` is what launches and listeners call it.
  void choose(const std::string& name, const SolverProblem& problem);
  // Of a problem that may differ from the chosen one in what costs nothing: a step's number, an image's.
  void launch(const std::string& name, const SolverProblem& problem, std::span<void* const> pointers);

  void forget() { runners_.clear(); }  // what was made for problems; choices stay
  std::size_t runners() const { return runners_.size(); }

 private:
  Platform* platform_;
  Executor* executor_;
  std::map<std::string, Plan::Choice> choices_;
  std::map<ProblemId, std::unique_ptr<Ready>> runners_;  // each problem is of one choice: a solver's half is a field
};

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
  // What run() is made of, for whoever enqueues steps himself. prepare(): labels, and what is computed once. Of a
  // network with levels ahead that is of this sampler's levels: no other sampler of the executor may run between this
  // and the last enqueue(). begin(): the same, and the first noise.
  void prepare(std::span<const int> labels);
  void begin(std::span<const int> labels, std::int64_t first_image);
  // Steps [begin, end), from the latents that lie where `begin` reads them.
  Status enqueue(std::size_t begin, std::size_t end, std::int64_t first_image = 0);
  const Network& network() const { return executor_->network(); }
  std::size_t steps() const { return steps_.size(); }
  // Where they lie before a step; behind the last one they are x0 times last_deviation().
  void* latents(std::size_t step) const { return loop_.at(step).latents; }
  double first_sigma() const { return steps_.front().churned_from; }
  double last_deviation() const { return std::hypot(1.0, steps_.back().sigma_next); }
  const std::vector<float>& initial_noise() const { return noise_; }  // of the last run, unit variance
  std::size_t runners() const { return launches_.runners(); }         // that are kept; at most those of one batch

 private:
  void plan_loop();
  void replay_steps(std::int64_t first_image);
  void bind_levels(std::size_t call, bool of_all_calls);
  void call_network(std::size_t call, void* latents);
  sampler_step::Problem problem_of(std::size_t step, sampler_step::Half half) const;

  Platform* platform_;
  Executor* executor_;
  SamplingOptions options_;
  std::vector<StepPlan> steps_;
  StepTables tables_;
  SolverLaunches launches_;
  Buffer latents_[2], guided_;
  std::vector<Buffer> history_;  // as many as a step reads, and the one that it writes, in turns
  struct Step {
    void* latents;  // before it
    std::vector<std::function<void(std::int64_t first_image)>> launches;
  };
  std::vector<Step> loop_;  // and one more, without launches, behind the last
  struct RecordedSteps {
    std::size_t end;  // the step behind them
    std::unique_ptr<Recording> recording;
  };
  std::vector<RecordedSteps> recordings_;  // of the whole loop, in order
  Progress progress_;
  std::size_t steps_a_report_ = 1;  // as fast as the last ones were
  bool recorded_programmatic_ = false;
  std::vector<float> noise_, given_noise_;
};

}  // namespace noisefloor::pipeline
