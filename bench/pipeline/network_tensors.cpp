#include "bench/pipeline/network_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace noisefloor::pipeline {
namespace {

using InputKind = NetworkTensor::Kind;

// How many times as high and wide as what it computes on is what a network draws.
std::int64_t enlarges(const NetworkInfo& info) {
  return *info.decoder == '\0' ? 1 : require_network(info.decoder).enlarges;
}

// The dimensions of an input that are sizes, counted from the last.
std::vector<std::pair<SizeField, std::size_t>> sizes_in(const NetworkInfo& info, InputKind kind) {
  const auto field = [](std::int64_t Sizes::*size) {
    const auto fields = size_fields();
    return *std::find_if(fields.begin(), fields.end(), [&](const SizeField& one) { return one.size == size; });
  };
  if (kind == InputKind::tokens) return {{field(&Sizes::tokens), 1}};
  if (kind == InputKind::text) return {{field(&Sizes::tokens), 2}};
  if (kind != InputKind::image) return {};
  std::vector<std::pair<SizeField, std::size_t>> all{{field(&Sizes::height), 2}, {field(&Sizes::width), 1}};
  if (info.most_frames > 1) all.push_back({field(&Sizes::frames), 4});
  return all;
}

}  // namespace

std::vector<std::int64_t> channels_first_shape(std::vector<std::int64_t> channels_last) {
  std::rotate(channels_last.end() - 3, channels_last.end() - 1, channels_last.end());
  return channels_last;
}

std::vector<double> numbers_of(const SafetensorsFile& file, const FileTensor& tensor, const std::string& path,
                               const std::vector<std::int64_t>& shape) {
  const auto dtype = dtype_of_safetensors(tensor.dtype);
  if (!dtype)
    throw InvalidInput(fmt::format("{}: tensor {} is {}; it can be F32, F16, BF16, F64, I32, I64 or U8", path,
                                   tensor.name, tensor.dtype));
  if (tensor.shape != shape)
    throw InvalidInput(fmt::format("{}: tensor {} is [{}], not [{}]", path, tensor.name, fmt::join(tensor.shape, ", "),
                                   fmt::join(shape, ", ")));
  const std::vector<std::byte> bytes = file.read(tensor);
  std::vector<double> numbers(bytes.size() / size_of(*dtype));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = load_element(*dtype, bytes.data(), static_cast<std::int64_t>(i));
    if (!std::isfinite(numbers[i]))
      throw InvalidInput(fmt::format("{}: tensor {} has numbers that are not finite", path, tensor.name));
    if (std::fabs(numbers[i]) > std::numeric_limits<float>::max())
      throw InvalidInput(
          fmt::format("{}: tensor {} has numbers that fp32 cannot hold: {}", path, tensor.name, numbers[i]));
  }
  return numbers;
}

PictureSides picture_sides(const NetworkInfo& info) {
  const std::int64_t times = enlarges(info);
  return {info.image.height * times, info.image.width * times, info.divisor * times};
}

Sizes latents_of_pictures(const NetworkInfo& info, Sizes sizes) {
  const std::int64_t times = enlarges(info);
  NetworkInfo pictures = info;
  const auto [height, width, side] = picture_sides(info);
  pictures.image.height = height, pictures.image.width = width, pictures.divisor = side;
  (void)pictures.resolved(sizes);
  for (std::int64_t* size : {&sizes.height, &sizes.width}) *size /= times;
  return sizes;
}

Sizes sizes_of_inputs(const NetworkInfo& info, const Sizes& asked, std::span<const FileTensor> tensors,
                      const std::string& path) {
  (void)info.resolved(asked);
  Sizes sizes = asked;
  for (const NetworkTensor& input : info.build({}).inputs) {
    const auto tensor =
        std::find_if(tensors.begin(), tensors.end(), [&](const FileTensor& one) { return one.name == input.name; });
    if (tensor == tensors.end() || tensor->shape.size() != input.shape.size()) continue;
    for (const auto& [field, from_last] : sizes_in(info, input.kind)) {
      const std::int64_t there = tensor->shape[tensor->shape.size() - from_last];
      const std::string where = fmt::format("{}: tensor {} is [{}]", path, input.name, fmt::join(tensor->shape, ", "));
      if (asked.*field.size != 0 && asked.*field.size != there)
        throw InvalidInput(fmt::format("{}, of {} {}, which contradicts --{} {}", where, field.name, there, field.name,
                                       asked.*field.size));
      if (there < 1 || there > field.most)
        throw InvalidInput(fmt::format("{}: {} {} is out of range (1 to {})", where, field.name, there, field.most));
      Sizes one;
      one.*field.size = sizes.*field.size = there;
      try {
        (void)info.resolved(one);
      } catch (const InvalidInput& error) {
        throw InvalidInput(fmt::format("{}: {}", where, error.what()));
      }
    }
  }
  return sizes;
}

}  // namespace noisefloor::pipeline
