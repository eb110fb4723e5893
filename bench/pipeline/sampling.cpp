#include "bench/pipeline/sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/pipeline/memory_need.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::CoefficientRow;
using sampler_step::Coefficients;
using sampler_step::Half;
using sampler_step::Schedule;

using Kind = NetworkTensor::Kind;

// Of a step: each asks the network once.
std::span<const Half> halves(const SamplingOptions& options) {
  static constexpr Half kHalves[] = {Half::first, Half::second};
  return std::span(kHalves).first(static_cast<std::size_t>(options.row().calls_of(0)));
}

const char* name_of(Half half) {
  return half == Half::first ? "first" : "second";
}

// Of one CUDA graph: instantiating it takes about a microsecond and 200 bytes a node.
constexpr std::size_t kRecordedNodes = 50'000;

// The problem of any step: steps differ in number and first image alone, and share one choice of variant.
sampler_step::Problem step_problem(const Network& network, const SamplingOptions& options, Half half) {
  sampler_step::Problem problem = formulas(options, network.prediction());
  problem.batch = network.batch;
  problem.elements = network.image.elements();
  problem.half = half;
  if (options.row().calls_of(problem.step) == 1 && half == Half::second) problem.step = 0;
  problem.seed = static_cast<std::int64_t>(options.seed);
  problem.noise = options.draws_in_steps() ? sampler_step::Noise::drawn : sampler_step::Noise::none;
  // Levels are ours, so the schedule in the problem's text stands for nothing; it must be one that goes with the
  // solver.
  problem.schedule = options.row().schedule;
  return problem;
}

std::size_t latents_bytes(const Network& network) {
  return static_cast<std::size_t>(network.batch * network.image.elements()) * sizeof(float);
}

}  // namespace

std::uint64_t first_noise_seed(std::uint64_t seed, std::int64_t image) {
  std::uint64_t mixed = seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(image) + 1;  // splitmix64's increment
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

std::size_t sampler_bytes(const Network& network, const SamplingOptions& options) {
  const auto steps = static_cast<std::size_t>(options.steps), batch = static_cast<std::size_t>(network.batch);
  const auto told = static_cast<std::size_t>(network.calls);
  const std::size_t calls = halves(options).size() * steps, older = static_cast<std::size_t>(options.row().older);
  const std::size_t tables = 2 * (steps + 1) * sampler_step::kRowLength + 2 * (1 + older) * batch * steps +
                             calls * told * (network.find(Kind::timesteps) != nullptr ? 2 : 1);
  std::size_t measuring = 0;
  for (const Half half : halves(options))
    measuring = std::max(measuring, trial_bytes(*find_op("sampler_step"),
                                                AnyProblem(step_problem(network, options, half)), DType::fp32));
  const std::size_t buffers = 4 + older + (options.guidance_grows() ? 1 : 0);
  return buffers * latents_bytes(network) + std::max(tables * sizeof(float), measuring);
}

Sampler::Sampler(Platform& platform, Executor& executor, const SamplingOptions& options)
    : platform_(&platform), executor_(&executor), options_(options) {
  const Network& network = executor.network();
  steps_ = plan_steps(options, network.prediction());
  const std::size_t bytes = latents_bytes(network);
  for (Buffer& buffer : latents_) buffer = Buffer(platform, bytes);
  for (int i = 0; i < 2 + options.row().older; ++i) history_.emplace_back(platform, bytes);

  for (const Half half : halves(options))
    choose(*find_op("sampler_step"), name_of(half), AnyProblem(step_problem(network, options, half)));
  if (options.churn > 0) choose(*find_op("q_sample"), "churn", AnyProblem(churn_problem()));
  if (options.row().older > 0) choose(*find_op("q_sample"), "older", AnyProblem(older_problem()));

  std::vector<float> guidance_levels;
  if (options.guidance_grows()) {
    guided_ = Buffer(platform, bytes);
    choose(*find_op("q_sample"), "guidance", AnyProblem(guidance_problem()));
    const std::int64_t frames = network.image.frames;
    for (std::int64_t i = 0; i < network.batch * frames; ++i) {
      const double part = frames == 1 ? 0 : static_cast<double>(i % frames) / static_cast<double>(frames - 1);
      const double guidance = *options.first_guidance + part * (options.guidance - *options.first_guidance);
      guidance_levels.insert(guidance_levels.end(), {static_cast<float>(1 - guidance), static_cast<float>(guidance)});
    }
  }

  // What depends on the schedule alone is computed once: a row of coefficients a step, and what each call is told.
  std::vector<Coefficients> rows, second_rows;
  std::vector<float> churn_levels, older_levels;
  std::vector<double> told;  // sigma of every call of the network
  for (const StepPlan& step : steps_) {
    rows.push_back(rounded(step.row));
    second_rows.push_back(rounded(step.second.value_or(CoefficientRow<double>{})));
    const double added = std::sqrt(std::max(0.0, step.sigma * step.sigma - step.churned_from * step.churned_from));
    for (std::int64_t i = 0; i < network.batch; ++i)
      churn_levels.insert(churn_levels.end(), {1.0f, static_cast<float>(added)});
    for (int k = 0; k < options.row().older; ++k) {
      const auto coefficient =
          static_cast<std::size_t>(k) < step.older.size() ? step.older[static_cast<std::size_t>(k)] : 0;
      for (std::int64_t i = 0; i < network.batch; ++i)
        older_levels.insert(older_levels.end(), {1.0f, static_cast<float>(coefficient)});
    }
    told.push_back(step.sigma);
    if (step.second) told.push_back(step.sigma_next);
  }
  if (options.ends_noisy) {  // to the op its last step is one of the middle
    rows.emplace_back();
    second_rows.emplace_back();
  }
  const auto images = static_cast<std::size_t>(network.calls);
  std::vector<float> sigmas, timesteps;
  for (const double sigma : told) {
    sigmas.insert(sigmas.end(), images, static_cast<float>(sigma));
    if (network.find(Kind::timesteps) != nullptr)
      timesteps.insert(timesteps.end(), images, static_cast<float>(timestep_of(sigma, network.info->schedule)));
  }
  const auto keep = [&](Buffer& buffer, const auto& numbers) {
    if (numbers.empty()) return;
    buffer = Buffer(platform, numbers.size() * sizeof(numbers[0]));
    platform.upload(buffer.data(), numbers.data(), buffer.bytes());
  };
  keep(rows_, rows);
  keep(second_rows_, second_rows);
  keep(churn_levels_, churn_levels);
  keep(older_levels_, older_levels);
  keep(guidance_levels_, guidance_levels);
  keep(sigmas_, sigmas);
  keep(timesteps_, timesteps);
}

std::vector<float> Sampler::run(std::span<const int> labels, std::int64_t first_image, const Observer& observer) {
  const Network& network = executor_->network();
  if (network.classes > 0) executor_->set_labels(labels);
  start(first_image);
  if (observer) observer(-1, latents_[current_].data());

  // Launches that draw noise have the images' numbers in them: of another batch, they are others.
  if (options_.draws_noise()) forget_launches();
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
  const double end = last_deviation();
  for (float& value : images) value = static_cast<float>(value / end);
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
    if (steps_[i].older.size() % 2 == 1) current_ = 1 - current_;
    for (const Half half : halves(options_)) {
      if (half == Half::second && !steps_[i].second) continue;
      if (problem_of(i, half, 0).writes_history()) newest_history_ = (newest_history_ + 1) % history_.size();
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

void Sampler::prepare_steps(std::span<const int> labels) {
  if (executor_->network().classes > 0) executor_->set_labels(labels);
  throw_if_failed(executor_->enqueue_once());
}

Status Sampler::enqueue_steps() {
  take_steps(0, steps_.size(), 0);
  return success();
}

const void* Sampler::last_latents() {
  go_to(steps_.size());
  return latents_[current_].data();
}

double Sampler::last_deviation() const {
  return std::hypot(1.0, steps_.back().sigma_next);
}

void Sampler::start(std::int64_t first_image) {
  const Network& network = executor_->network();
  const std::int64_t elements = network.image.elements();
  // The first level's latents: sigma noise where x0 is negligible beside it (karras), of variance x0 + sigma^2 = 1 +
  // sigma^2 where a schedule was trained on latents of unit variance.
  const double sigma = steps_.front().churned_from;
  const double deviation = options_.schedule == Schedule::karras ? sigma : std::sqrt(1 + sigma * sigma);
  go_to(0);
  throw_if_failed(executor_->enqueue_once());
  if (!given_noise_.empty()) {
    noise_ = std::exchange(given_noise_, {});
    std::vector<float> latents(noise_);
    for (float& value : latents) value = static_cast<float>(value * deviation);
    platform_->upload(latents_[0].data(), latents.data(), latents_[0].bytes());
    return;
  }
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
    const std::size_t newest_history = newest_history_;
    denoise(x);
    update(step, Half::first, first_image, x, next);
    if (steps_[step].second) {
      denoise(next);
      update(step, Half::second, first_image, next, x);
    } else {
      current_ = 1 - current_;
    }
    add_older(step, newest_history);
  }
}

void Sampler::denoise(const void* latents) {
  const Network& network = executor_->network();
  const std::size_t at = call_ * static_cast<std::size_t>(network.calls) * sizeof(float);
  executor_->bind(network.x(), const_cast<void*>(latents));
  executor_->bind(network.require(Kind::sigma).value, static_cast<char*>(sigmas_.data()) + at);
  if (const NetworkTensor* timesteps = network.find(Kind::timesteps))
    executor_->bind(timesteps->value, static_cast<char*>(timesteps_.data()) + at);
  throw_if_failed(executor_->enqueue_call(call_ % static_cast<std::size_t>(options_.cache_every) != 0));
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

// What the steps before the one before kept: `newest_history` is that one's.
void Sampler::add_older(std::size_t step, std::size_t newest_history) {
  const auto older = static_cast<std::size_t>(options_.row().older);
  const std::size_t stride = static_cast<std::size_t>(2 * executor_->network().batch) * sizeof(float);
  for (std::size_t k = 0; k < steps_[step].older.size(); ++k) {
    void* const pointers[] = {
        latents_[current_].data(), history_[(newest_history + history_.size() - 1 - k) % history_.size()].data(),
        static_cast<char*>(older_levels_.data()) + (step * older + k) * stride, latents_[1 - current_].data()};
    launch(*find_op("q_sample"), "older", AnyProblem(older_problem()), pointers);
    current_ = 1 - current_;
  }
}

// Guidance that is not one number is no coefficient of a step: each frame's two predictions are mixed before it, as
// noise of a level is added.
void* Sampler::prediction() {
  void* const output = executor_->data(executor_->network().output());
  if (!options_.guidance_grows()) return output;
  void* const pointers[] = {output, static_cast<char*>(output) + guided_.bytes(), guidance_levels_.data(),
                            guided_.data()};
  launch(*find_op("q_sample"), "guidance", AnyProblem(guidance_problem()), pointers);
  return guided_.data();
}

void Sampler::update(std::size_t step, Half half, std::int64_t first_image, const void* x, void* x_next) {
  const sampler_step::Problem problem = problem_of(step, half, first_image);
  const Buffer& rows = half == Half::first ? rows_ : second_rows_;
  std::vector<void*> pointers{const_cast<void*>(x), prediction()};
  if (problem.reads_history()) pointers.push_back(history_[newest_history_].data());
  pointers.push_back(rows.data());
  pointers.push_back(x_next);
  if (problem.writes_history()) {
    newest_history_ = (newest_history_ + 1) % history_.size();
    pointers.push_back(history_[newest_history_].data());
  }
  launch(*find_op("sampler_step"), name_of(half), AnyProblem(problem), pointers);
}

// Without noise no image differs from another, so that the launches of one batch do for all.
sampler_step::Problem Sampler::problem_of(std::size_t step, Half half, std::int64_t first_image) const {
  sampler_step::Problem problem = step_problem(executor_->network(), options_, half);
  problem.steps = static_cast<std::int64_t>(steps_.size()) + (options_.ends_noisy ? 1 : 0);
  problem.step = static_cast<std::int64_t>(step);
  if (problem.noise == sampler_step::Noise::drawn) problem.image = first_image;
  return problem;
}

q_sample::Problem Sampler::churn_problem() const {
  const Network& network = executor_->network();
  q_sample::Problem problem;
  problem.batch = network.batch;
  problem.elements = network.image.elements();
  problem.noise = q_sample::Noise::drawn;
  problem.seed = static_cast<std::int64_t>(options_.seed);
  return problem;
}

// x + coefficient * slope, as noise of a level is added.
q_sample::Problem Sampler::older_problem() const {
  q_sample::Problem problem;
  problem.batch = executor_->network().batch;
  problem.elements = executor_->network().image.elements();
  return problem;
}

q_sample::Problem Sampler::guidance_problem() const {
  const Network& network = executor_->network();
  q_sample::Problem problem;
  problem.batch = network.batch * network.image.frames;
  problem.elements = network.image.elements() / network.image.frames;
  return problem;
}

void Sampler::choose(const Op& op, const std::string& choice, const AnyProblem& problem) {
  const std::string text = op.print(problem);
  const CountedProblem counted{&op, text, DType::fp32, 1};
  const Plan plan(*platform_, executor_->nodes(), {counted}, {});
  choices_.emplace(choice, Choice{plan.choice(problem_id(counted)), plan.warm_us(problem_id(counted))});
}

void Sampler::launch(const Op& op, const std::string& choice, const AnyProblem& problem,
                     std::span<void* const> pointers) {
  const ProblemId id{op.name, op.print(problem), to_string(DType::fp32)};
  const auto& [implementation, warm_us] = choices_.at(choice);
  auto& runner = runners_[id];
  KnownTimes nothing;
  if (!runner) runner = implementation->make(*platform_, problem, DType::fp32, nothing);
  LaunchListener* listener = executor_->listener();
  if (listener != nullptr) listener->before({{id, implementation->name}, "sampler." + choice, warm_us});
  LaunchContext context = platform_->context();
  context.programmatic_launch = executor_->programmatic();
  throw_if_failed(runner->launch(pointers, {}, context));
  if (listener != nullptr) listener->after();
}

}  // namespace noisefloor::pipeline
