#include "bench/pipeline/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/core/fields.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::CoefficientRow;
using sampler_step::NoiseLevel;
using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::Solver;

bool variance_preserving(Solver solver) {
  return solver == Solver::ddpm || solver == Solver::ddim;
}

void require(bool holds, const std::string& message) {
  if (!holds) throw InvalidInput(message);
}

void check(const SamplingOptions& options) {
  for (const auto& [option, value] :
       {std::pair{"--sigma-min", options.sigma_min}, std::pair{"--sigma-max", options.sigma_max},
        std::pair{"--rho", options.rho}, std::pair{"--eta", options.eta}, std::pair{"--churn", options.churn},
        std::pair{"--guidance", options.guidance}, std::pair{"--clamp", options.clamp}})
    require(std::isfinite(value), fmt::format("{} {}: must be a finite number", option, value));
  constexpr std::int64_t kMostSeed = std::numeric_limits<std::int64_t>::max();
  require(options.seed <= static_cast<std::uint64_t>(kMostSeed),
          fmt::format("--seed {}: the range is 0 to {}", options.seed, kMostSeed));
  require(options.steps >= 1 && options.steps <= sampler_step::kTrainingSteps,
          fmt::format("--steps {}: the range is 1 to {}", options.steps, sampler_step::kTrainingSteps));
  if (options.schedule == Schedule::karras) {
    require(options.sigma_min > 0 && options.sigma_min < options.sigma_max,
            fmt::format("--sigma-min {} and --sigma-max {}: the first must be above 0 and below the second",
                        options.sigma_min, options.sigma_max));
    require(options.rho > 0, fmt::format("--rho {}: must be above 0", options.rho));
  }
  require(options.eta >= 0 && options.eta <= 1, fmt::format("--eta {}: the range is 0 to 1", options.eta));
  require(options.eta == 0 || options.solver == Solver::ddim, "--eta is for the sampler ddim");
  require(options.churn >= 0, fmt::format("--churn {}: must not be negative", options.churn));
  require(options.churn == 0 || options.solver == Solver::edm_euler || options.solver == Solver::edm_heun,
          "--churn is for the samplers edm_euler and edm_heun");
}

// On the device a step's numbers are floats.
void check(const StepPlan& step, std::size_t number) {
  const auto finite = [](double value) { return std::isfinite(static_cast<float>(value)); };
  const auto finite_row = [&](const CoefficientRow<double>& row) {  // its limit is infinite where there is none
    return finite(row.model_x) && finite(row.model) && finite(row.model_cond) && finite(row.x) && finite(row.x0) &&
           finite(row.history) && finite(row.noise) && finite(row.previous) && finite(row.history_x) &&
           finite(row.history_x0);
  };
  require(finite(step.sigma) && static_cast<float>(step.sigma) > 0 && finite_row(step.row) &&
              (!step.second || finite_row(*step.second)),
          fmt::format("step {}: noise level {}, with what follows from it, is beyond the range of fp32; change "
                      "--sigma-min, --sigma-max or --rho",
                      number, step.sigma));
}

std::vector<double> sigmas_of(const SamplingOptions& options) {
  if (options.schedule == Schedule::karras)
    return sampler_step::karras_sigmas(options.steps, options.sigma_min, options.sigma_max, options.rho);
  std::vector<double> sigmas;
  for (const NoiseLevel level :
       sampler_step::noise_levels(options.schedule, options.steps, sampler_step::Scaling::variance_exploding))
    sigmas.push_back(level.sigma);
  return sigmas;
}

// The level as the solver's formulas want it.
NoiseLevel level_of(double sigma, Solver solver) {
  if (!variance_preserving(solver)) return {1, sigma};
  const double alpha = 1 / std::sqrt(1 + sigma * sigma);
  return {alpha, sigma * alpha};
}

// A row for latents x' = alpha x, as one for x: the prediction is taken at x' = alpha x, and what comes out is divided
// by the next level's alpha. The noise that a network predicts is the same in both.
CoefficientRow<double> carried_over(CoefficientRow<double> row, NoiseLevel now, NoiseLevel next) {
  row.model_x *= now.alpha;
  row.x *= now.alpha / next.alpha;
  row.x0 /= next.alpha;
  row.noise /= next.alpha;
  return row;
}

sampler_step::Problem formulas(const SamplingOptions& options, Prediction prediction) {
  sampler_step::Problem problem;
  problem.solver = options.solver;
  problem.prediction = prediction;
  problem.guidance = options.guidance;
  problem.clamp = options.clamp;
  problem.eta = options.eta;
  return problem;
}

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

}  // namespace

std::vector<StepPlan> plan_steps(const SamplingOptions& options, Prediction prediction) {
  check(options);
  const std::vector<double> sigmas = sigmas_of(options);
  // Karras et al. 2022, algorithm 2: gamma = min(S_churn / N, sqrt(2) - 1).
  const double gamma = std::min(options.churn / options.steps, std::sqrt(2.0) - 1);
  std::vector<StepPlan> steps;
  sampler_step::Problem problem = formulas(options, prediction);
  for (std::size_t i = 0; i + 1 < sigmas.size(); ++i) {
    StepPlan step;
    step.churned_from = sigmas[i];
    step.sigma = sigmas[i] * (1 + gamma);
    step.sigma_next = sigmas[i + 1];
    const NoiseLevel now = level_of(step.sigma, options.solver), next = level_of(step.sigma_next, options.solver);
    problem.half = sampler_step::Half::first;
    const auto before = i == 0 ? std::nullopt : std::optional(level_of(sigmas[i - 1], options.solver));
    step.row = carried_over(coefficient_row(problem, before, now, next), now, next);
    if (options.solver == Solver::edm_heun && step.sigma_next > 0) {
      problem.half = sampler_step::Half::second;
      step.second = coefficient_row(problem, before, now, next);
    }
    check(step, i);
    steps.push_back(step);
  }
  return steps;
}

double timestep_of(double sigma, Schedule schedule) {
  std::vector<double> logs;
  for (const double alpha_bar : sampler_step::cumulative_alphas(schedule))
    logs.push_back(std::log((1 - alpha_bar) / alpha_bar) / 2);
  const double wanted = std::log(sigma);
  const auto above = std::lower_bound(logs.begin(), logs.end(), wanted);
  if (above == logs.begin()) return 0;
  if (above == logs.end()) return static_cast<double>(logs.size() - 1);
  const auto index = static_cast<double>(above - logs.begin());
  return index - (*above - wanted) / (*above - *(above - 1));
}

Sampler::Sampler(Platform& platform, Executor& executor, const SamplingOptions& options)
    : platform_(&platform), executor_(&executor), options_(options) {
  const Network& network = executor.network();
  const bool predicts_noise = network.form == Network::Form::noise_prediction;
  steps_ = plan_steps(options, predicts_noise ? Prediction::noise : Prediction::x0);
  const std::size_t bytes =
      static_cast<std::size_t>(network.batch * network.pixels() * network.channels) * sizeof(float);
  for (Buffer* buffer : {&latents_[0], &latents_[1], &history_[0], &history_[1]}) *buffer = Buffer(platform, bytes);

  choose(*find_op("sampler_step"), "first", AnyProblem(step_problem(sampler_step::Half::first)));
  if (options.solver == Solver::edm_heun)
    choose(*find_op("sampler_step"), "second", AnyProblem(step_problem(sampler_step::Half::second)));
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

  // One recording (on a GPU: one CUDA graph) for as many steps as it can hold; step by step where someone watches.
  const std::size_t nodes_a_step = network.graph.nodes().size() * (steps_.front().second ? 2 : 1) + 3;
  const std::size_t at_once = observer ? 1 : std::max<std::size_t>(1, kRecordedNodes / nodes_a_step);
  for (std::size_t begin = 0; begin < steps_.size(); begin += at_once) {
    const std::size_t end = std::min(steps_.size(), begin + at_once);
    const auto enqueue = [&] {
      take_steps(begin, end, first_image);
      return success();
    };
    if (observer)
      throw_if_failed(enqueue());
    else
      platform_->record(enqueue)->replay();
    platform_->synchronize();
    if (observer) observer(static_cast<int>(begin), latents_[current_].data());
  }
  std::vector<float> images(latents_[current_].bytes() / sizeof(float));
  platform_->download(images.data(), latents_[current_].data(), latents_[current_].bytes());
  return images;
}

void Sampler::prepare(std::span<const int> labels) {
  if (executor_->network().classes > 0) executor_->set_labels(labels);
  start(0);
}

Status Sampler::enqueue_first_step() {
  current_ = newest_history_ = 0;
  call_ = 0;
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
  current_ = newest_history_ = 0;
  call_ = 0;
  for (std::int64_t i = 0; i < network.batch; ++i)
    platform_->fill_normal(DType::fp32, static_cast<float*>(latents_[0].data()) + i * elements, elements, 0, deviation,
                           first_noise_seed(options_.seed, first_image + i));
  noise_.resize(latents_[0].bytes() / sizeof(float));
  platform_->download(noise_.data(), latents_[0].data(), latents_[0].bytes());
  for (float& value : noise_) value = static_cast<float>(value / deviation);
}

void Sampler::take_steps(std::size_t begin, std::size_t end, std::int64_t first_image) {
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
  sampler_step::Problem problem = step_problem(half);
  problem.steps = static_cast<std::int64_t>(steps_.size());
  problem.image = first_image;
  problem.step = static_cast<std::int64_t>(step);

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

// The problem of any step: steps differ in number and first image alone, and share one choice of variant.
sampler_step::Problem Sampler::step_problem(sampler_step::Half half) const {
  const Network& network = executor_->network();
  const bool predicts_noise = network.form == Network::Form::noise_prediction;
  sampler_step::Problem problem = formulas(options_, predicts_noise ? Prediction::noise : Prediction::x0);
  problem.batch = network.batch;
  problem.elements = network.pixels() * network.channels;
  problem.half = half;
  problem.seed = static_cast<std::int64_t>(options_.seed);
  const bool stochastic = options_.solver == Solver::ddpm || options_.eta > 0;
  problem.noise = stochastic ? sampler_step::Noise::drawn : sampler_step::Noise::none;
  // Levels are ours, so the schedule in the problem's text stands for nothing; it must be one that goes with the
  // solver.
  problem.schedule = variance_preserving(options_.solver) ? Schedule::linear : Schedule::karras;
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
    listener->before({op.name, "sampler." + choice, text, to_string(DType::fp32), candidate.name, warm_us});
  throw_if_failed(runner->launch(pointers, nullptr, nullptr, executor_->programmatic()));
  if (listener != nullptr) listener->after();
}

}  // namespace noisefloor::pipeline
