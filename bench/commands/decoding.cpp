#include "bench/commands/decoding.h"

#include <fmt/format.h>

#include "bench/commands/image_layout.h"
#include "bench/pipeline/finite.h"
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
  const std::vector<float> turned = to_channels_first(latents, image);
  const FileTensor x{"x", safetensors_name(DType::fp32), shape, std::as_bytes(std::span(turned))};
  write_safetensors(file, std::span(&x, 1), {{"network", decoder.name()}, {kLayoutKey, kChannelsFirst}});
}

}  // namespace

Decoding::Decoding(const NetworkInfo& decoder, const NetworkArguments& arguments, const ImageShape& latents,
                   std::shared_ptr<Platform> platform)
    : arguments_(arguments), latents_(latents) {
  open_ = build_network(decoder, arguments, {.sizes = {.height = latents.height, .width = latents.width}},
                        std::move(platform));
}

ImageShape Decoding::picture() const {
  const std::vector<std::int64_t>& shape = open_.network->outputs.front().shape;
  return {shape[1], shape[2], shape[3]};
}

void Decoding::rehearse() {
  start_network(open_, arguments_);
  open_.executor.reset();
}

std::vector<float> Decoding::run(const std::vector<float>& latents, std::int64_t first_image,
                                 const std::filesystem::path& rescue) {
  try {
    return decode(latents, first_image);
  } catch (...) {
    const char* const name = open_.network->name();
    try {
      write_latents(rescue, *open_.network, latents_, latents);
      fmt::print(stderr,
                 "\nthe pictures could not be decoded; their latents are in {}, which noisefloor forward {} --weights "
                 "{} --input {} --output FILE takes\n",
                 rescue.string(), name, arguments_.weights, rescue.string());
    } catch (const std::exception& error) {
      fmt::print(stderr, "\nthe pictures could not be decoded, nor their latents kept: {}\n", error.what());
    }
    throw;
  }
}

std::vector<float> Decoding::decode(const std::vector<float>& latents, std::int64_t first_image) {
  start_network(open_, arguments_);
  const Network& network = *open_.network;
  const auto numbers = static_cast<std::size_t>(latents_.elements());
  std::vector<float> pictures, picture(static_cast<std::size_t>(network.graph[network.output()].elements()));
  for (std::size_t at = 0; at < latents.size(); at += numbers) {
    open_.platform->upload(open_.executor->data(network.x()), latents.data() + at, numbers * sizeof(float));
    throw_if_failed(open_.executor->enqueue());
    open_.platform->synchronize();
    open_.platform->download(picture.data(), open_.executor->data(network.output()), picture.size() * sizeof(float));
    pictures.insert(pictures.end(), picture.begin(), picture.end());
  }
  require_finite(pictures, static_cast<std::int64_t>(picture.size()), first_image);
  return pictures;
}

}  // namespace noisefloor
