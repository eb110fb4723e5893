#include "bench/commands/decoding.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/pipeline/finite.h"
#include "bench/pipeline/memory_need.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/tensors/safetensors.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

// As `forward` takes them.
void write_latents(const std::filesystem::path& file, const Network& decoder, const ImageShape& image,
                   const std::vector<float>& latents) {
  std::vector<std::int64_t> shape = channels_first_shape(decoder.inputs.front().shape);
  shape.front() = std::ssize(latents) / image.elements();
  if (shape.size() > 4) shape[1] = image.frames;
  const std::vector<float> turned = to_channels_first(latents, image);
  const FileTensor x{"x", safetensors_name(DType::fp32), shape, std::as_bytes(std::span(turned))};
  write_safetensors(file, std::span(&x, 1), {{"network", decoder.name()}, {kLayoutKey, kChannelsFirst}});
}

// How many of so many frames are decoded at a time: all, or of as few parts as fit, equal but for the last.
std::int64_t chunk_that_fits(const NetworkInfo& decoder, const OpenNetwork& one, std::int64_t frames) {
  BuildOptions more = one.options;
  more.sizes.frames = frames + 1;
  const auto bytes_of = [&](const Network& network) {
    return executor_bytes(network, one.platform->description(), [](std::size_t) { return nullptr; });
  };
  const std::int64_t most = largest_fitting(decoder, more, bytes_for_networks(*one.platform), bytes_of, frames_of);
  const std::int64_t parts = (frames + most - 1) / std::max<std::int64_t>(1, most);
  return most == 0 ? 1 : (frames + parts - 1) / parts;
}

}  // namespace

Decoding::Decoding(const NetworkInfo& decoder, const NetworkArguments& arguments, const ImageShape& latents,
                   std::shared_ptr<Platform> platform, std::int64_t chunk)
    : arguments_(arguments), latents_(latents) {
  const auto add = [&](std::int64_t frames) {
    parts_.push_back(build_network(settings_of(decoder, arguments), arguments,
                                   {.sizes = {.height = latents.height, .width = latents.width, .frames = frames}},
                                   platform));
  };
  add(chunk == 0 ? 1 : std::min(chunk, latents.frames));
  if (chunk == 0 && latents.frames > 1) {
    const std::int64_t fitting = chunk_that_fits(decoder, parts_.front(), latents.frames);
    parts_.clear();
    add(fitting);
  }
  if (const std::int64_t rest = latents.frames % parts_.front().network->image.frames; rest > 0) add(rest);
}

ImageShape Decoding::picture() const {
  const std::vector<std::int64_t>& shape = parts_.front().network->outputs.front().shape;
  const std::size_t last = shape.size() - 1;
  return {shape[last - 2], shape[last - 1], shape[last], latents_.frames};
}

void Decoding::rehearse() {
  for (OpenNetwork& part : parts_) {
    start_network(part, arguments_);
    bytes_ = std::max(bytes_, part.executor->bytes());
    part.executor.reset();
  }
}

std::vector<float> Decoding::run(const std::vector<float>& latents, std::int64_t first_image,
                                 const std::filesystem::path& rescue) {
  try {
    return decode(latents, first_image);
  } catch (...) {
    for (OpenNetwork& part : parts_) part.executor.reset();
    const Network& network = *parts_.front().network;
    try {
      OutputFiles files;
      files.add("latents", rescue);
      write_latents(files.partial("latents"), network, latents_, latents);
      files.commit();
      fmt::print(stderr,
                 "\nthe pictures could not be decoded; their latents are in {}, which noisefloor forward {} --weights "
                 "{} --input {} --output FILE takes\n",
                 rescue.string(), network.name(), arguments_.weights, rescue.string());
    } catch (const std::exception& error) {
      fmt::print(stderr, "\nthe pictures could not be decoded, nor their latents kept: {}\n", error.what());
    }
    throw;
  }
}

std::vector<float> Decoding::decode(const std::vector<float>& latents, std::int64_t first_image) {
  const auto of_frame = static_cast<std::size_t>(latents_.pixels() * latents_.channels);
  const auto drawn = static_cast<std::size_t>(picture().elements() / latents_.frames);
  std::vector<float> pictures(latents.size() / of_frame * drawn);
  const auto frames = static_cast<std::size_t>(latents_.frames), chunk = static_cast<std::size_t>(this->chunk());
  for (OpenNetwork& part : parts_) {
    start_network(part, arguments_);
    const Network& network = *part.network;
    const auto at_once = static_cast<std::size_t>(network.image.frames);
    const bool rest = &part != &parts_.front();
    for (std::size_t video = 0; video < latents.size() / of_frame; video += frames) {
      const std::size_t begin = rest ? frames / chunk * chunk : 0, end = rest ? frames : frames / chunk * chunk;
      for (std::size_t frame = video + begin; frame < video + end; frame += at_once) {
        part.platform->upload(part.executor->data(network.x()), latents.data() + frame * of_frame,
                              at_once * of_frame * sizeof(float));
        throw_if_failed(part.executor->enqueue());
        part.platform->synchronize();
        part.platform->download(pictures.data() + frame * drawn, part.executor->data(network.output()),
                                at_once * drawn * sizeof(float));
      }
    }
    part.executor.reset();
  }
  require_finite(pictures, picture().elements(), first_image);
  return pictures;
}

}  // namespace noisefloor
