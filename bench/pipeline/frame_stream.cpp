#include "bench/pipeline/frame_stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/measure/suite.h"
#include "bench/platform/refusal.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::pipeline {
namespace {

SamplingOptions frame_options(const SampleRequest& first, int steps, double strength) {
  SamplingOptions options = first.options;
  if (first.moves())
    throw refusal("stream follows a picture with pictures; {} draws videos, which noisefloor sample shows",
                  first.row().name);
  if (sampler_step::stochastic(options.row(), 0))
    throw refusal(
        "--sampler {}: draws noise at its steps; frames take one that draws none: {}", options.row().name,
        listed(sampler_step::solvers_where([](const auto& row) { return !sampler_step::stochastic(row, 0); }), "or"));
  if (options.draws_noise())
    throw refusal("{}: draws noise on the way, which frames do not",
                  options.churn > 0 ? "--sampler churn=" : "--sampler eta=");
  const long all = std::max<long>(steps, std::lround(steps / strength));
  options.steps = static_cast<int>(std::min<long>(all, sampler_step::kTrainingSteps + 1));
  options.first_step = options.steps - steps;
  try {
    (void)plan_steps(options, first.row());
  } catch (const InvalidInput& error) {
    throw refusal("--steps {} and --strength {}: are the last of {} steps: {}", steps, strength, all, error.what());
  }
  return options;
}

}  // namespace

FrameStream::FrameStream(Platform& platform, Executor& network, const SamplingOptions& options, Executor* decoder,
                         double blend)
    : platform_(&platform),
      sampler_(platform, network, options),
      mixing_(platform, network),
      decoder_(decoder),
      blend_(blend),
      seed_(options.seed) {
  if (!(blend >= 0 && blend <= 1)) throw refusal("--blend {}: the range is 0 to 1", blend);
  const Network& graph = network.network();
  const std::size_t numbers = static_cast<std::size_t>(graph.batch * graph.image.elements());
  for (Buffer* buffer : {&noise_, &before_}) *buffer = Buffer(platform, numbers * sizeof(float));
  for (Buffer* buffer : {&begin_levels_, &end_levels_})
    *buffer = Buffer(platform, static_cast<std::size_t>(graph.batch) * sizeof(q_sample::Level));
  picture_.resize(decoder == nullptr
                      ? numbers
                      : static_cast<std::size_t>(decoder->network().graph[decoder->network().output()].elements()));
  mixing_.choose("mixing", mixing_problem(graph));
}

std::size_t FrameStream::bytes(const Network& network, const SamplingOptions& options) {
  const auto latents = static_cast<std::size_t>(network.batch * network.image.elements()) * sizeof(float);
  const std::size_t levels = static_cast<std::size_t>(network.batch) * sizeof(q_sample::Level);
  return sampler_bytes(network, options) + std::max(2 * (latents + levels), trial_bytes(mixing_problem(network)));
}

void FrameStream::begin(std::span<const int> labels, const std::vector<float>& x0) {
  const double kept = 1 - blend_, sigma = sampler_.first_sigma();
  const double made_up = root_mean_square({x0.begin(), x0.end()}) * std::sqrt(1 - kept * kept);
  const auto upload = [&](Buffer& buffer, q_sample::Level level) {
    const std::vector<q_sample::Level> levels(buffer.bytes() / sizeof(level), level);
    platform_->upload(buffer.data(), levels.data(), buffer.bytes());
  };
  upload(begin_levels_, {static_cast<float>(kept), static_cast<float>(std::hypot(sigma, made_up))});
  upload(end_levels_, {static_cast<float>(1 / sampler_.last_deviation()), 0});
  platform_->upload(before_.data(), x0.data(), before_.bytes());
  sampler_.prepare(labels);
  frame_ = 0;
}

const std::vector<float>& FrameStream::next() {
  const auto numbers = static_cast<std::int64_t>(noise_.bytes() / sizeof(float));
  platform_->fill_normal(DType::fp32, noise_.data(), numbers, 0, 1, first_noise_seed(seed_, ++frame_));
  if (!recording_)
    recording_ = platform_->record([this] {
      mix(before_.data(), begin_levels_, sampler_.latents(0));
      if (const Status status = sampler_.enqueue(0, sampler_.steps()); !status.ok()) return status;
      mix(sampler_.latents(sampler_.steps()), end_levels_, before_.data());
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
  mixing_.launch("mixing", mixing_problem(sampler_.network()), pointers);
}

StreamRequest::StreamRequest(const SampleArguments& asked, int frame_steps, double strength, double replaced)
    : first(asked),
      frame(frame_options(first, frame_steps, strength)),
      steps(plan_steps(frame, first.row())),
      blend(replaced) {}

StreamPipeline::StreamPipeline(const StreamRequest& request, Device device)
    : models_(request.first, device, calls_of(request.steps)) {
  if (models_.decoding) decoder_ = std::make_unique<RunningModel>(models_.decoding->model());
  SamplingOptions first = request.first.options, frame = request.frame;
  first.cache_every = 1;
  const std::size_t loops = request.first.loops();
  network_ = std::make_unique<RunningModel>(models_.model, [=](const Network& other) {
    return sampler_bytes(other, first) + loops * FrameStream::bytes(other, frame);
  });
  network_->make([&] {
    Executor* const decoder = decoder_ ? &decoder_->executor() : nullptr;
    first_.emplace(device.platform, network_->executor(), first);
    asked_.emplace(device.platform, network_->executor(), frame, decoder, request.blend);
    frame.cache_every = 1;
    if (loops > 1) whole_.emplace(device.platform, network_->executor(), frame, decoder, request.blend);
  });
}

static double mean_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

FrameTimes StreamPipeline::draw(std::int64_t count, bool all_whole,
                                const std::function<void(const std::vector<float>&)>& seen) {
  const std::vector<int>& labels = models_.drawing.labels;
  if (first_picture_.empty()) {
    models_.tell(*network_, *first_, 0);
    first_picture_ = first_->run(labels, 0);
    require_finite(first_picture_, models_.model.network.image.elements(), 0);
  }
  FrameStream& stream = all_whole && whole_ ? *whole_ : *asked_;
  stream.begin(labels, first_picture_);
  (void)stream.next();
  stream.begin(labels, first_picture_);
  FrameTimes frames;
  for (std::int64_t frame = 0; frame < count; ++frame) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<float>& picture = stream.next();
    frames.ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    require_finite(picture, std::ssize(picture), frame);
    if (seen) seen(picture);
    if (frame > 0) frames.change.push_back(mean_difference(picture, frames.last));
    frames.last = picture;
  }
  return frames;
}

}  // namespace noisefloor::pipeline
