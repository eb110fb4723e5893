#include "bench/pipeline/sampling.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace noisefloor::pipeline {
namespace {

using sampler_step::Half;

using Kind = NetworkTensor::Kind;

const char* name_of(Half half) {
  return half == Half::first ? "first" : "second";
}

// Of one CUDA graph: instantiating it takes about a microsecond and 200 bytes a node.
constexpr std::size_t kRecordedNodes = 50'000;

// Between two reports of progress.
constexpr double kReportSeconds = 0.5;

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

// x + level noise.
q_sample::Problem churn_problem(const Network& network, const SamplingOptions& options) {
  q_sample::Problem problem = mixing_problem(network);
  problem.noise = q_sample::Noise::drawn;
  problem.seed = static_cast<std::int64_t>(options.seed);
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
  std::size_t measuring = 0;
  for (const Half half : options.halves())
    measuring = std::max(measuring, trial_bytes(step_problem(network, options, half)));
  const std::size_t buffers = 4 + static_cast<std::size_t>(options.row().older) + (options.guidance_grows() ? 1 : 0);
  return buffers * latents_bytes(network) + StepTables::bytes(network, options) + measuring;
}

q_sample::Problem mixing_problem(const Network& network, bool of_frames) {
  const std::int64_t frames = of_frames ? network.image.frames : 1;
  return {.batch = network.batch * frames, .elements = network.image.elements() / frames};
}

void SolverLaunches::choose(const std::string& name, const SolverProblem& problem) {
  const CountedProblem counted{problem.op, problem.op->print(problem.problem), DType::fp32, 1};
  const Plan plan(*platform_, executor_->nodes(), {counted}, {});
  choices_.emplace(name, plan.choice(problem_id(counted)));
}

void SolverLaunches::launch(const std::string& name, const SolverProblem& problem, std::span<void* const> pointers) {
  const ProblemId id{problem.op->name, problem.op->print(problem.problem), to_string(DType::fp32)};
  const auto& [implementation, warm_us] = choices_.at(name);
  auto& runner = runners_[id];
  KnownTimes nothing;
  if (!runner) runner = implementation->make(*platform_, problem.problem, DType::fp32, nothing);
  LaunchListener* listener = executor_->listener();
  if (listener != nullptr) listener->before({{id, implementation->name}, "sampler." + name, warm_us});
  LaunchContext context = platform_->context();
  context.programmatic_launch = executor_->programmatic();
  throw_if_failed(runner->launch(pointers, {}, context));
  if (listener != nullptr) listener->after();
}

Sampler::Sampler(Platform& platform, Executor& executor, const SamplingOptions& options)
    : platform_(&platform),
      executor_(&executor),
      options_(options),
      steps_(plan_steps(options, *executor.network().info)),
      tables_(platform, executor.network(), options, steps_),
      launches_(platform, executor) {
  const Network& network = executor.network();
  const std::size_t bytes = latents_bytes(network);
  for (Buffer& buffer : latents_) buffer = Buffer(platform, bytes);
  for (int i = 0; i < 2 + options.row().older; ++i) history_.emplace_back(platform, bytes);

  for (const Half half : options.halves()) launches_.choose(name_of(half), step_problem(network, options, half));
  if (options.churn > 0) launches_.choose("churn", churn_problem(network, options));
  if (options.row().older > 0) launches_.choose("older", mixing_problem(network));
  if (options.guidance_grows()) {
    guided_ = Buffer(platform, bytes);
    launches_.choose("guidance", mixing_problem(network, /*of_frames=*/true));
  }
  plan_loop();
}

// The launches of every step, which know what they read and write: latents lie in two buffers in turns.
void Sampler::plan_loop() {
  const Network& network = executor_->network();
  std::size_t calls = 0, newest = 0;  // of the history
  void *x = latents_[0].data(), *next = latents_[1].data();
  std::vector<std::function<void(std::int64_t)>> launches;
  const auto launch = [&](const char* name, const auto& problem, const std::vector<void*>& pointers) {
    launches.push_back([this, name, now = problem, pointers](std::int64_t first_image) mutable {
      // Without noise no image differs from another, so that the launches of one batch do for all.
      if (now.noise == decltype(now.noise)::drawn) now.image = first_image;
      launches_.launch(name, now, pointers);
    });
  };
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    const StepPlan& plan = steps_[step];
    void* const begin = x;
    if (plan.sigma > plan.churned_from) {
      q_sample::Problem churn = churn_problem(network, options_);
      churn.step = static_cast<std::int64_t>(step);
      launch("churn", churn, {x, tables_.churn(step), next});
      std::swap(x, next);
    }
    const std::size_t newest_before = newest;
    for (const Half half : options_.halves()) {
      if (half == Half::second && !plan.second) continue;
      launches.push_back([this, call = calls++, x](std::int64_t) { call_network(call, x); });
      void* prediction = executor_->data(network.output());
      if (options_.guidance_grows()) {  // which is no coefficient of a step: each frame's two predictions are mixed
        launch("guidance", mixing_problem(network, /*of_frames=*/true),
               {prediction, static_cast<char*>(prediction) + guided_.bytes(), tables_.guidance(), guided_.data()});
        prediction = guided_.data();
      }
      const sampler_step::Problem problem = problem_of(step, half);
      std::vector<void*> pointers{x, prediction};
      if (problem.reads_history()) pointers.push_back(history_[newest].data());
      pointers.insert(pointers.end(), {tables_.rows(half), next});
      if (problem.writes_history()) {
        newest = (newest + 1) % history_.size();
        pointers.push_back(history_[newest].data());
      }
      launch(name_of(half), problem, pointers);
      std::swap(x, next);
    }
    for (std::size_t k = 0; k < plan.older.size(); ++k) {  // x + coefficient * slope
      void* const kept = history_[(newest_before + history_.size() - 1 - k) % history_.size()].data();
      launch("older", mixing_problem(network), {x, kept, tables_.older(step, k), next});
      std::swap(x, next);
    }
    loop_.push_back({begin, std::exchange(launches, {})});
  }
  loop_.push_back({x, {}});
}

std::vector<float> Sampler::run(std::span<const int> labels, std::int64_t first_image, const Observer& observer) {
  begin(labels, first_image);
  if (observer) observer(-1, latents(0));

  // Launches that draw noise have the images' numbers in them: of another batch, they are others.
  if (options_.draws_noise()) {
    recordings_.clear();
    launches_.forget();
  }
  if (observer) {
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      throw_if_failed(enqueue(step, step + 1, first_image));
      platform_->synchronize();
      observer(static_cast<int>(step), latents(step + 1));
      if (progress_) progress_(step + 1);
    }
  } else {
    replay_steps(first_image);
  }
  std::vector<float> images(latents_[0].bytes() / sizeof(float));
  platform_->download(images.data(), latents(steps_.size()), latents_[0].bytes());
  const double end = last_deviation();
  for (float& value : images) value = static_cast<float>(value / end);
  return images;
}

// A recording (on a GPU: a CUDA graph) has as many steps as it can hold, or as are taken between two reports.
void Sampler::replay_steps(std::int64_t first_image) {
  if (recorded_programmatic_ != executor_->programmatic() || executor_->listener() != nullptr) recordings_.clear();
  recorded_programmatic_ = executor_->programmatic();
  const std::size_t nodes = executor_->network().graph.nodes().size();
  const std::size_t most = std::max<std::size_t>(1, kRecordedNodes / (nodes * (steps_.front().second ? 2 : 1) + 3));
  const auto piece_of = [&] { return progress_ ? std::clamp<std::size_t>(steps_a_report_, 1, most) : most; };
  for (std::size_t begin = 0, piece = 0; begin < steps_.size(); ++piece) {
    if (piece == recordings_.size()) {
      const std::size_t end = std::min(steps_.size(), begin + piece_of());
      recordings_.push_back(
          {end, platform_->record([this, begin, end, first_image] { return enqueue(begin, end, first_image); })});
    }
    const auto start = std::chrono::steady_clock::now();
    recordings_[piece].recording->replay();
    platform_->synchronize();
    const std::size_t taken = recordings_[piece].end - begin;
    begin += taken;
    if (!progress_) continue;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    steps_a_report_ = static_cast<std::size_t>(
        std::min(kReportSeconds * static_cast<double>(taken) / std::max(seconds, 1e-9), static_cast<double>(most)));
    progress_(begin);
  }
}

void Sampler::report_to(Progress progress) {
  progress_ = std::move(progress);
  steps_a_report_ = 1;
  recordings_.clear();
}

void Sampler::prepare(std::span<const int> labels) {
  if (executor_->network().classes > 0) executor_->set_labels(labels);
  bind_levels(0, /*of_all_calls=*/true);
  throw_if_failed(executor_->enqueue_once());
}

void Sampler::begin(std::span<const int> labels, std::int64_t first_image) {
  const Network& network = executor_->network();
  const std::int64_t elements = network.image.elements();
  const double deviation = first_deviation(steps_.front().churned_from, options_, *network.info);
  prepare(labels);
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

Status Sampler::enqueue(std::size_t begin, std::size_t end, std::int64_t first_image) {
  for (std::size_t step = begin; step < end; ++step)
    for (const auto& launch : loop_[step].launches) launch(first_image);
  return success();
}

void Sampler::call_network(std::size_t call, void* latents) {
  executor_->bind(executor_->network().x(), latents);
  bind_levels(call, /*of_all_calls=*/false);
  throw_if_failed(executor_->enqueue_call(call % static_cast<std::size_t>(options_.cache_every) != 0, call));
}

// What the network is told of the noise, from `call` on.
void Sampler::bind_levels(std::size_t call, bool of_all_calls) {
  for (const NetworkTensor& input : executor_->network().inputs) {
    if (input.of_all_calls != of_all_calls) continue;
    if (input.kind == Kind::sigma) executor_->bind(input.value, tables_.sigmas(call));
    if (input.kind == Kind::timesteps) executor_->bind(input.value, tables_.timesteps(call));
  }
}

sampler_step::Problem Sampler::problem_of(std::size_t step, Half half) const {
  sampler_step::Problem problem = step_problem(executor_->network(), options_, half);
  problem.steps = static_cast<std::int64_t>(steps_.size()) + (options_.ends_noisy ? 1 : 0);
  problem.step = static_cast<std::int64_t>(step);
  return problem;
}

}  // namespace noisefloor::pipeline
