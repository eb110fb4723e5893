#include "bench/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "bench/platform/refusal.h"
#include "reports/run/statistics.h"

namespace noisefloor::pipeline {
namespace {

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::unique_ptr<Conditioning> conditioning_of(SampleRequest& request) {
  const NetworkInfo& row = request.row();
  if (row.conditioning.empty()) return nullptr;
  auto conditioning = std::make_unique<Conditioning>(request.asked.conditioning, row, request.guided());
  request.sizes = conditioning->sizes(request.sizes);
  return conditioning;
}

std::optional<Decoding> decoding_of(const SampleRequest& request, const Model& model) {
  if (!request.latent()) return std::nullopt;
  const NetworkInfo& row = require_network(request.row().decoder);
  ModelRequest asked = request.asked.model.of_decoder(request.row());
  if (std::error_code error; !std::filesystem::is_directory(asked.weights, error))
    throw refusal("{} draws latents: --weights is the folder of a diffusers pipeline, with {}/ and, for {}, {}/",
                  request.row().name, request.row().folder, row.name, row.folder);
  asked.dtype = model.options.dtype;
  if (asked.dtype == DType::fp16 && (*row.no_fp16 != '\0' || asked.settings(row).upcast)) asked.dtype = DType::fp32;
  const ImageShape& latents = model.network.image;
  std::optional<Decoding> decoding(std::in_place, row, asked, latents, model.device, request.asked.chunk.value_or(0));
  if (const std::int64_t chunk = decoding->chunk(); !request.asked.chunk && chunk < latents.frames)
    fmt::print(stderr, "{} decodes {} of {} frames at a time, as memory allows; frames do not see those of others\n",
               row.name, chunk, latents.frames);
  return decoding;
}

}  // namespace

PipelineModels::PipelineModels(const SampleRequest& asked, Device device, std::int64_t calls)
    : request(asked),
      conditioning(conditioning_of(request)),
      model(request.settings, request.asked.model, request.build_options(std::max(calls, calls_of(request.steps))),
            device),
      decoding(decoding_of(request, model)),
      drawing(request, model.network, decoding ? decoding->picture() : model.network.image) {
  if (conditioning) conditioning->read(model.network, request.asked.count);
  model.say_what_is_read();
  if (decoding) decoding->model().say_what_is_read();
  if (decoding) decoding->model().check_weights();
  model.check_weights();
}

void PipelineModels::tell(const RunningModel& running, Sampler& sampler, std::int64_t first) const {
  if (!conditioning) return;
  conditioning->set(model.device.platform, running.executor(), first);
  sampler.begin_from(conditioning->noise(model.network, first));
}

Pipeline::Loops::Loops(PipelineModels& models)
    : running(models.model, [&request = models.request](const Network& other) {
        return request.loops() * sampler_bytes(other, request.options);
      }) {
  running.make([&] {
    SamplingOptions options = models.request.options;
    asked.emplace(models.model.device.platform, running.executor(), options);
    if (std::exchange(options.cache_every, 1) > 1)
      whole.emplace(models.model.device.platform, running.executor(), options);
  });
}

Pipeline::Pipeline(const SampleRequest& request, Device device) : models_(request, device) {
  if (models_.decoding) models_.decoding->rehearse();
  loops_ = std::make_unique<Loops>(models_);
  bytes_ = loops_->running.executor().bytes() +
           models_.request.loops() * sampler_bytes(models_.model.network, request.options);
  if (models_.decoding) bytes_ = std::max(bytes_, models_.decoding->bytes());
}

// The last batch may be filled up.
std::vector<int> Pipeline::labels(std::int64_t first) const {
  const std::vector<int>& all = models_.drawing.labels;
  const std::int64_t batch = models_.request.batch(), wanted = std::min(batch, std::ssize(all) - first);
  std::vector<int> labels(all.begin() + first, all.begin() + first + wanted);
  labels.resize(static_cast<std::size_t>(batch));
  return labels;
}

void Pipeline::prepare_first_step() {
  models_.tell(loops_->running, *loops_->asked, 0);
  loops_->asked->begin(labels(0), 0);
}

void Pipeline::draw_batch(std::int64_t first, Images& images) {
  const SampleRequest& request = models_.request;
  const std::int64_t wanted = std::min(request.batch(), request.asked.count - first);
  const std::int64_t numbers = wanted * models_.model.network.image.elements();
  const auto observer = [&](int step, const void* latents) {
    if (!request.shown(step)) return;
    std::vector<float> frame(static_cast<std::size_t>(numbers));
    models_.model.device.platform.download(frame.data(), latents, frame.size() * sizeof(float));
    const double sigma =
        step < 0 ? request.steps.front().churned_from : request.steps[static_cast<std::size_t>(step)].sigma_next;
    for (float& value : frame) value = static_cast<float>(value / std::sqrt(1 + sigma * sigma));
    std::vector<float>& frames = images.frames[step];
    frames.insert(frames.end(), frame.begin(), frame.end());
  };
  Sampler& sampler = *loops_->asked;
  models_.tell(loops_->running, sampler, first);
  const bool kept = request.watched() && (!request.asked.gif.empty() || first == 0);
  const std::int64_t number = request.asked.first_image + first;
  const std::vector<float> drawn = sampler.run(labels(first), number, kept ? Sampler::Observer(observer) : nullptr);
  require_finite(std::span(drawn).first(static_cast<std::size_t>(numbers)), numbers / wanted, number);
  images.images.insert(images.images.end(), drawn.begin(), drawn.begin() + numbers);
  const std::vector<float>& noise = sampler.initial_noise();
  images.noise.insert(images.noise.end(), noise.begin(), noise.begin() + numbers);
}

// Both loops in turns, behind a turn that is not timed and on a GPU records.
ShallowCost Pipeline::cost_of_shallow_calls() {
  constexpr int kTurns = 3;
  std::vector<double> seconds[2];
  std::vector<float> x0[2];
  for (int turn = 0; turn <= kTurns; ++turn)
    for (const int side : {0, 1}) {
      Sampler& sampler = side == 0 ? *loops_->asked : *loops_->whole;
      const Clock clock;
      models_.tell(loops_->running, sampler, 0);
      x0[side] = sampler.run(labels(0), models_.request.asked.first_image);
      if (turn > 0) seconds[side].push_back(clock.seconds());
    }
  return {median(seconds[0]), median(seconds[1]), relative_l2(x0[0], x0[1])};
}

Images Pipeline::draw(const OnStep& on_step, const Decoding::Rescue& rescue) {
  if (!loops_) loops_ = std::make_unique<Loops>(models_);
  const SampleRequest& request = models_.request;
  Images images;
  Step now{};
  const Clock sampling;
  const auto report = [&](std::size_t taken) { on_step({now.first, now.images, taken}); };
  loops_->asked->report_to(on_step ? report : Sampler::Progress());  // a draw that threw has left its own
  for (now.first = 0; now.first < request.asked.count; now.first += request.batch()) {
    now.images = std::min(request.batch(), request.asked.count - now.first);
    draw_batch(now.first, images);
  }
  images.seconds = sampling.seconds();
  loops_->asked->report_to({});
  if (loops_->whole) images.shallow_cost = cost_of_shallow_calls();
  if (!models_.decoding) return images;
  images.latents = std::exchange(images.images, {});
  loops_.reset();  // makes room
  const Clock decoding;
  images.images = models_.decoding->run(images.latents, request.asked.first_image, rescue);
  images.seconds += decoding.seconds();
  return images;
}

}  // namespace noisefloor::pipeline
