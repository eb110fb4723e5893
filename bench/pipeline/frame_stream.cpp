#include "bench/pipeline/frame_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/measure/oracle.h"
#include "bench/pipeline/memory_need.h"
#include "kernels/core/fields.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::pipeline {
namespace {

// x a + noise b, of two levels an image.
q_sample::Problem mixing_problem(const Network& network) {
  return {.batch = network.batch, .elements = network.image.elements()};
}

}  // namespace

FrameStream::FrameStream(Platform& platform, Executor& network, Sampler& sampler, Executor* decoder, double blend,
                         std::uint64_t seed)
    : platform_(&platform), network_(&network), sampler_(&sampler), decoder_(decoder), blend_(blend), seed_(seed) {
  if (!(blend >= 0 && blend <= 1)) throw InvalidInput(fmt::format("--blend {}: the range is 0 to 1", blend));
  const Network& graph = network.network();
  const std::size_t numbers = static_cast<std::size_t>(graph.batch * graph.image.elements());
  for (Buffer* buffer : {&noise_, &before_}) *buffer = Buffer(platform, numbers * sizeof(float));
  for (Buffer* buffer : {&begin_levels_, &end_levels_})
    *buffer = Buffer(platform, static_cast<std::size_t>(graph.batch) * sizeof(q_sample::Level));
  picture_.resize(decoder == nullptr
                      ? numbers
                      : static_cast<std::size_t>(decoder->network().graph[decoder->network().output()].elements()));

  const AnyProblem problem(mixing_problem(graph));
  const Op& op = *find_op("q_sample");
  const CountedProblem counted{&op, op.print(problem), DType::fp32, 1};
  const Plan plan(platform, network.nodes(), {counted}, {});
  KnownTimes nothing;
  mixing_ = plan.choice(problem_id(counted))->make(platform, problem, DType::fp32, nothing);
}

std::size_t FrameStream::bytes(const Network& network) {
  const auto latents = static_cast<std::size_t>(network.batch * network.image.elements()) * sizeof(float);
  const std::size_t levels = static_cast<std::size_t>(network.batch) * sizeof(q_sample::Level);
  return std::max(2 * (latents + levels),
                  trial_bytes(*find_op("q_sample"), AnyProblem(mixing_problem(network)), DType::fp32));
}

void FrameStream::begin(std::span<const int> labels, const std::vector<float>& x0) {
  const auto batch = static_cast<std::size_t>(network_->network().batch);
  const double kept = 1 - blend_, sigma = sampler_->first_sigma();
  const double made_up = root_mean_square({x0.begin(), x0.end()}) * std::sqrt(1 - kept * kept);
  const auto upload = [&](Buffer& buffer, q_sample::Level level) {
    const std::vector<q_sample::Level> levels(batch, level);
    platform_->upload(buffer.data(), levels.data(), buffer.bytes());
  };
  upload(begin_levels_, {static_cast<float>(kept), static_cast<float>(std::hypot(sigma, made_up))});
  upload(end_levels_, {static_cast<float>(1 / sampler_->last_deviation()), 0});
  platform_->upload(before_.data(), x0.data(), before_.bytes());
  sampler_->prepare_steps(labels);
  frame_ = 0;
}

const std::vector<float>& FrameStream::next() {
  const auto numbers = static_cast<std::int64_t>(noise_.bytes() / sizeof(float));
  platform_->fill_normal(DType::fp32, noise_.data(), numbers, 0, 1, first_noise_seed(seed_, ++frame_));
  if (!recording_)
    recording_ = platform_->record([this] {
      mix(before_.data(), begin_levels_, sampler_->first_latents());
      if (const Status status = sampler_->enqueue_steps(); !status.ok()) return status;
      mix(sampler_->last_latents(), end_levels_, before_.data());
      if (decoder_ == nullptr) return success();
      decoder_->bind(decoder_->network().x(), before_.data());  // which another stream may share
      return decoder_->enqueue();
    });
  recording_->replay();
  platform_->synchronize();
  const void* const picture = decoder_ == nullptr ? before_.data() : decoder_->data(decoder_->network().output());
  platform_->download(picture_.data(), picture, picture_.size() * sizeof(float));
  return picture_;
}

std::vector<float> FrameStream::latents() const {
  std::vector<float> numbers(before_.bytes() / sizeof(float));
  platform_->download(numbers.data(), before_.data(), before_.bytes());
  return numbers;
}

void FrameStream::mix(const void* x, const Buffer& levels, void* into) {
  void* const pointers[] = {const_cast<void*>(x), noise_.data(), levels.data(), into};
  LaunchContext context = platform_->context();
  context.programmatic_launch = network_->programmatic();
  throw_if_failed(mixing_->launch(pointers, {}, context));
}

}  // namespace noisefloor::pipeline
