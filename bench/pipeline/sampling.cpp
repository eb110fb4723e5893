#include "bench/pipeline/sampling.h"

#include <algorithm>
#include <cmath>

#include "bench/pipeline/memory_need.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::CoefficientRow;
using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::Solver;

std::vector<float> as_floats(const CoefficientRow<double>& row) {
  std::vector<float> numbers;
  for (const double number : {row.model_x, row.model, row.model_cond, row.limit, row.x, row.x0, row.history, row.noise,
                              row.previous, row.history_x, row.history_x0, 0.0})
    numbers.push_back(static_cast<float>(number));
  return numbers;
}

// Of one CUDA graph: instantiating it takes about a microsecond and 200 bytes a node.
constexpr std::size_t kRecordedNodes = 50'000;

// A seed for each image's first noise; drawn noise takes seed and image as they are.
std::uint64_t first_noise_seed(std::uint64_t seed, std::int64_t image) {
  std::uint64_t mixed = seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(image) + 1;  // splitmix64's increment
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

// The problem of any step: steps differ in number and first image alone, and share one choice of variant.
sampler_step::Problem step_problem(const Network& network, const SamplingOptions& options, sampler_step::Half half) {
  const bool predicts_noise = network.form == Network::Form::noise_prediction;
  sampler_step::Problem problem = formulas(options, predicts_noise ? Prediction::noise : Prediction::x0);
  problem.batch = network.batch;
  problem.elements = network.pixels() * network.channels;
  problem.half = half;
  problem.seed = static_cast<std::int64_t>(options.seed);
  const bool drawn = options.solver == Solver::ddpm || options.eta > 0;
  problem.noise = drawn ? sampler_step::Noise::drawn : sampler_step::Noise::none;
  // Levels are ours, so the schedule in the problem's text stands for nothing; it must be one that goes with the
  // solver.
  problem.schedule = variance_preserving(options.solver) ? Schedule::linear : Schedule::karras;
  return problem;
}

std::size_t latents_bytes(const Network& network) {
  return static_cast<std::size_t>(network.batch * network.pixels() * network.channels) * sizeof(float);
}

}  // namespace

std::size_t sampler_bytes(const Network& network, const SamplingOptions& options) {
  const auto steps = static_cast<std::size_t>(options.steps), batch = static_cast<std::size_t>(network.batch);
  const auto told = static_cast<std::size_t>(network.graph[*network.sigma].elements());
  const std::size_t calls = options.solver == Solver::edm_heun ? 2 * steps : steps;
  const std::size_t row = as_floats({}).size();
  const std::size_t tables = 2 * steps * row + 2 * batch * steps + calls * told * (network.timesteps ? 2 : 1);
  std::size_t measuring = 0;
  for (const auto half : {sampler_step::Half::first, sampler_step::Half::second})
    if (half == sampler_step::Half::first || options.solver == Solver::edm_heun)
      measuring = std::max(measuring, trial_bytes(*find_op("sampler_step"),
                                                  AnyProblem(step_problem(network, options, half)), DType::fp32));
  return 4 * latents_bytes(network) + std::max(tables * sizeof(float), measuring);
}

Sampler::Sampler(Platform& platform, Executor& executor, const SamplingOptions& options)
    : platform_(&platform), executor_(&executor), options_(options) {
  const Network& network = executor.network();
  const bool predicts_noise = network.form == Network::Form::noise_prediction;
  steps_ = plan_steps(options, predicts_noise ? Prediction::noise : Prediction::x0);
  const std::size_t bytes = latents_bytes(network);
  for (Buffer* buffer : {&latents_[0], &latents_[1], &history_[0], &history_[1]}) *buffer = Buffer(platform, bytes);

  choose(*find_op("sampler_step"), "first", AnyProblem(step_problem(network, options, sampler_step::Half::first)));
  if (options.solver == Solver::edm_heun)
    choose(*find_op("sampler_step"), "second", AnyProblem(step_problem(network, options, sampler_step::Half::second)));
  if (options.churn > 0) choose(*find_op("q_sample"), "churn", AnyProblem(churn_problem()));

  // What depends on the schedule alone is computed once: a row of coefficients a step, and what each call is told.
  std::vector<float> rows, second_rows, churn_levels;
  std::vector<double> told;  // sigma of every call of the network
  for (const StepPlan& step : steps_) {
    for (const float number : as_floats(step.row)) rows.push_back(number);
    for (const float number : as_floats(step.second.value_or(CoefficientRow<double>{}))) second_rows.push_back(number);
    const double added = std::sqrt(std::max(0.0, step.sigma * step.sigma - step.churned_from * step.churned_from));
    for (std::int64_t i = 0; i < network.batch; ++i)
      churn_levels.insert(churn_levels.end(), {1.0f, static_cast<float>(added)});
    told.push_back(step.sigma);
    if (step.second) told.push_back(step.sigma_next);
  }
  const std::int64_t calls_batch = network.graph[*network.sigma].elements();
  std::vector<float> sigmas, timesteps;
  for (const double sigma : told) {
    sigmas.insert(sigmas.end(), static_cast<std::size_t>(calls_batch), static_cast<float>(sigma));
    if (network.timesteps)
      timesteps.insert(timesteps.end(), static_cast<std::size_t>(calls_batch),
                       static_cast<float>(timestep_of(sigma, network.schedule)));
  }
  const auto keep = [&](Buffer& buffer, const std::vector<float>& numbers) {
    if (numbers.empty()) return;
    buffer = Buffer(platform, numbers.size() * sizeof(float));
    platform.upload(buffer.data(), numbers.data(), numbers.size() * sizeof(float));
  };
  keep(rows_, rows);
  keep(second_rows_, second_rows);
  keep(churn_levels_, churn_levels);
  keep(sigmas_, sigmas);
  keep(timesteps_, timesteps);
}

std::vector<float> Sampler::run(std::span<const int> labels, std::int64_t first_image, const Observer& observer) {
  const Network& network = executor_->network();
  if (network.classes > 0) executor_->set_labels(labels);
  start(first_image);
  if (observer) observer(-1, latents_[current_].data());

  // Launches that draw noise have the images' numbers in them: of another batch, they are others.
  if (draws_noise()) forget_launches();
  if (observer) {
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      take_steps(step, step + 1, first_image);
      platform_->synchronize();
      observer(static_cast<int>(step), latents_[current_].data());
    }
  } else {
    replay_steps(first_image);
  }
  std::vector<float> images(latents_[current_].bytes() / sizeof(float));
  platform_->download(images.data(), latents_[current_].data(), latents_[current_].bytes());
  return images;
}

// One recording (on a GPU: one CUDA graph) for as many steps as it can hold.
void Sampler::replay_steps(std::int64_t first_image) {
  if (recorded_programmatic_ != executor_->programmatic() || executor_->listener() != nullptr) recordings_.clear();
  recorded_programmatic_ = executor_->programmatic();
  const std::size_t nodes = executor_->network().graph.nodes().size();
  const std::size_t at_once = std::max<std::size_t>(1, kRecordedNodes / (nodes * (steps_.front().second ? 2 : 1) + 3));
  std::size_t recording = 0;
  for (std::size_t begin = 0; begin < steps_.size(); begin += at_once, ++recording) {
    const std::size_t end = std::min(steps_.size(), begin + at_once);
    if (recording == recordings_.size())
      recordings_.push_back(platform_->record([this, begin, end, first_image] {
        take_steps(begin, end, first_image);
        return success();
      }));
    recordings_[recording]->replay();
    platform_->synchronize();
  }
  go_to(steps_.size());  // a replay on a GPU leaves the host's count of steps as it is
}

bool Sampler::draws_noise() const {
  return options_.solver == Solver::ddpm || options_.eta > 0 || options_.churn > 0;
}

void Sampler::forget_launches() {
  recordings_.clear();
  runners_.clear();
}

// Which buffers hold what, and which call of the network is the next, when `step` begins.
void Sampler::go_to(std::size_t step) {
  current_ = newest_history_ = 0;
  call_ = 0;
  for (std::size_t i = 0; i < step; ++i) {
    if (steps_[i].sigma > steps_[i].churned_from) current_ = 1 - current_;
    if (!steps_[i].second) current_ = 1 - current_;
    for (const auto half : {sampler_step::Half::first, sampler_step::Half::second}) {
      if (half == sampler_step::Half::second && !steps_[i].second) continue;
      if (problem_of(i, half, 0).writes_history()) newest_history_ = 1 - newest_history_;
      ++call_;
    }
  }
}

void Sampler::prepare(std::span<const int> labels) {
  if (executor_->network().classes > 0) executor_->set_labels(labels);
  start(0);
}

Status Sampler::enqueue_first_step() {
  take_steps(0, 1, 0);
  return success();
}

void Sampler::start(std::int64_t first_image) {
  const Network& network = executor_->network();
  const std::int64_t elements = network.pixels() * network.channels;
  // The first level's latents: sigma noise where x0 is negligible beside it (karras), of variance x0 + sigma^2 = 1 +
  // sigma^2 where a schedule was trained on latents of unit variance.
  const double sigma = steps_.front().churned_from;
  const double deviation = options_.schedule == Schedule::karras ? sigma : std::sqrt(1 + sigma * sigma);
  go_to(0);
  for (std::int64_t i = 0; i < network.batch; ++i)
    platform_->fill_normal(DType::fp32, static_cast<float*>(latents_[0].data()) + i * elements, elements, 0, deviation,
                           first_noise_seed(options_.seed, first_image + i));
  noise_.resize(latents_[0].bytes() / sizeof(float));
  platform_->download(noise_.data(), latents_[0].data(), latents_[0].bytes());
  for (float& value : noise_) value = static_cast<float>(value / deviation);
}

void Sampler::take_steps(std::size_t begin, std::size_t end, std::int64_t first_image) {
  go_to(begin);
  for (std::size_t step = begin; step < end; ++step) {
    if (steps_[step].sigma > steps_[step].churned_from) add_churn(step, first_image);
    void* x = latents_[current_].data();
    void* next = latents_[1 - current_].data();
    denoise(x);
    update(step, sampler_step::Half::first, first_image, x, next);
    if (steps_[step].second) {
      denoise(next);
      update(step, sampler_step::Half::second, first_image, next, x);
    } else {
      current_ = 1 - current_;
    }
  }
}

void Sampler::denoise(const void* latents) {
  const Network& network = executor_->network();
  const std::size_t stride = static_cast<std::size_t>(network.graph[*network.sigma].elements()) * sizeof(float);
  executor_->bind(network.x, const_cast<void*>(latents));
  executor_->bind(*network.sigma, static_cast<char*>(sigmas_.data()) + call_ * stride);
  if (network.timesteps) executor_->bind(*network.timesteps, static_cast<char*>(timesteps_.data()) + call_ * stride);
  throw_if_failed(executor_->enqueue());
  ++call_;
}

void Sampler::add_churn(std::size_t step, std::int64_t first_image) {
  const Network& network = executor_->network();
  q_sample::Problem problem = churn_problem();
  problem.image = first_image;
  problem.step = static_cast<std::int64_t>(step);
  const std::size_t stride = static_cast<std::size_t>(2 * network.batch) * sizeof(float);
  void* const pointers[] = {latents_[current_].data(), static_cast<char*>(churn_levels_.data()) + step * stride,
                            latents_[1 - current_].data()};
  launch(*find_op("q_sample"), "churn", AnyProblem(problem), pointers);
  current_ = 1 - current_;
}

void Sampler::update(std::size_t step, sampler_step::Half half, std::int64_t first_image, const void* x, void* x_next) {
  const sampler_step::Problem problem = problem_of(step, half, first_image);
  const Buffer& rows = half == sampler_step::Half::first ? rows_ : second_rows_;
  std::vector<void*> pointers{const_cast<void*>(x), executor_->data(executor_->network().output)};
  if (problem.reads_history()) pointers.push_back(history_[newest_history_].data());
  pointers.push_back(rows.data());
  pointers.push_back(x_next);
  if (problem.writes_history()) {
    newest_history_ = 1 - newest_history_;
    pointers.push_back(history_[newest_history_].data());
  }
  const char* choice = half == sampler_step::Half::first ? "first" : "second";
  launch(*find_op("sampler_step"), choice, AnyProblem(problem), pointers);
}

// Without noise no image differs from another, so that the launches of one batch do for all.
sampler_step::Problem Sampler::problem_of(std::size_t step, sampler_step::Half half, std::int64_t first_image) const {
  sampler_step::Problem problem = step_problem(executor_->network(), options_, half);
  problem.steps = static_cast<std::int64_t>(steps_.size());
  problem.step = static_cast<std::int64_t>(step);
  if (problem.noise == sampler_step::Noise::drawn) problem.image = first_image;
  return problem;
}

q_sample::Problem Sampler::churn_problem() const {
  const Network& network = executor_->network();
  q_sample::Problem problem;
  problem.batch = network.batch;
  problem.elements = network.pixels() * network.channels;
  problem.noise = q_sample::Noise::drawn;
  problem.seed = static_cast<std::int64_t>(options_.seed);
  return problem;
}

void Sampler::choose(const Op& op, const std::string& choice, const AnyProblem& problem) {
  const std::string text = op.print(problem);
  const Plan plan(*platform_, {{&op, text, DType::fp32, 1}}, {});
  choices_.emplace(choice, Choice{plan(op, DType::fp32, text), plan.warm_us(op, DType::fp32, text)});
}

void Sampler::launch(const Op& op, const std::string& choice, const AnyProblem& problem,
                     std::span<void* const> pointers) {
  const std::string text = op.print(problem);
  const auto& [candidate, warm_us] = choices_.at(choice);
  auto& runner = runners_[choice + "|" + text];
  if (!runner) runner = std::make_unique<Runner>(*platform_, op, problem, DType::fp32, candidate);
  LaunchListener* listener = executor_->listener();
  if (listener != nullptr)
    listener->before({{{op.name, text, to_string(DType::fp32)}, candidate.name}, "sampler." + choice, warm_us});
  throw_if_failed(runner->launch(pointers, nullptr, nullptr, executor_->programmatic()));
  if (listener != nullptr) listener->after();
}

}  // namespace noisefloor::pipeline
