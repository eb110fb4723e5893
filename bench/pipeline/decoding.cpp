#include "bench/pipeline/decoding.h"

#include <algorithm>

#include "bench/pipeline/pictures.h"

namespace noisefloor::pipeline {
namespace {

// How many of so many frames are decoded at a time: all, or of as few parts as fit, equal but for the last.
std::int64_t chunk_that_fits(const NetworkInfo& decoder, const Model& one, std::int64_t frames) {
  BuildOptions more = one.options;
  Platform& platform = one.device.platform;
  const std::size_t free = bytes_for_networks(platform);
  const std::int64_t most = largest_fitting(frames + 1, [&](std::int64_t fewer) {
    more.sizes.frames = fewer;
    return executor_bytes(decoder.build(more), platform.description(), [](std::size_t) {
             return nullptr;
           }).value_or(free + 1) <= free;
  });
  const std::int64_t parts = (frames + most - 1) / std::max<std::int64_t>(1, most);
  return most == 0 ? 1 : (frames + parts - 1) / parts;
}

}  // namespace

Decoding::Decoding(const NetworkInfo& decoder, const ModelRequest& request, const ImageShape& latents, Device device,
                   std::int64_t chunk)
    : latents_(latents) {
  const auto add = [&](std::int64_t frames) {
    const Sizes sizes{.height = latents.height, .width = latents.width, .frames = frames};
    parts_.emplace_back(request.settings(decoder), request, BuildOptions{.sizes = sizes}, device);
  };
  add(chunk == 0 ? 1 : std::min(chunk, latents.frames));
  if (chunk == 0 && latents.frames > 1) {
    const std::int64_t fitting = chunk_that_fits(decoder, parts_.front(), latents.frames);
    parts_.clear();
    add(fitting);
  }
  if (const std::int64_t rest = latents.frames % this->chunk(); rest > 0) add(rest);
}

ImageShape Decoding::picture() const {
  const std::vector<std::int64_t>& shape = parts_.front().network.outputs.front().shape;
  const std::size_t last = shape.size() - 1;
  return {shape[last - 2], shape[last - 1], shape[last], latents_.frames};
}

void Decoding::rehearse() {
  for (Model& part : parts_) bytes_ = std::max(bytes_, RunningModel(part).executor().bytes());
}

std::vector<float> Decoding::run(const std::vector<float>& latents, std::int64_t first_image, const Rescue& rescue) {
  try {
    const std::int64_t videos = std::ssize(latents) / latents_.elements();
    std::vector<float> pictures(static_cast<std::size_t>(videos * picture().elements()));
    for (Model& part : parts_) decode(part, latents, pictures);
    require_finite(pictures, picture().elements(), first_image);
    return pictures;
  } catch (...) {
    if (rescue) rescue(latents);
    throw;
  }
}

void Decoding::decode(Model& part, const std::vector<float>& latents, std::vector<float>& pictures) {
  const RunningModel running(part);
  Executor& executor = running.executor();
  Platform& platform = part.device.platform;
  const auto of_frame = static_cast<std::size_t>(latents_.pixels() * latents_.channels);
  const auto drawn = static_cast<std::size_t>(picture().elements() / latents_.frames);
  const auto frames = static_cast<std::size_t>(latents_.frames), chunk = static_cast<std::size_t>(this->chunk());
  const auto at_once = static_cast<std::size_t>(part.network.image.frames);
  const bool rest = &part != &parts_.front();
  const std::size_t begin = rest ? frames / chunk * chunk : 0, end = rest ? frames : frames / chunk * chunk;
  for (std::size_t video = 0; video < latents.size() / of_frame; video += frames)
    for (std::size_t frame = video + begin; frame < video + end; frame += at_once) {
      platform.upload(executor.data(part.network.x()), latents.data() + frame * of_frame,
                      at_once * of_frame * sizeof(float));
      throw_if_failed(executor.enqueue());
      platform.synchronize();
      platform.download(pictures.data() + frame * drawn, executor.data(part.network.output()),
                        at_once * drawn * sizeof(float));
    }
}

}  // namespace noisefloor::pipeline
