#include "bench/pipeline/network_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "bench/platform/refusal.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

using InputKind = NetworkTensor::Kind;

// How many times as high and wide as what it computes on is what a network draws.
std::int64_t enlarges(const NetworkInfo& info) {
  return *info.decoder == '\0' ? 1 : require_network(info.decoder).enlarges;
}

// Which dimension of an input a size is, counted from the last; 0: none.
std::size_t dimension_of(const SizeField& field, const NetworkInfo& info, InputKind kind) {
  if (kind == InputKind::text) return field.size == &Sizes::tokens ? 2 : 0;
  if (kind != InputKind::image || field.size == &Sizes::tokens) return 0;
  if (field.size == &Sizes::frames) return info.most_frames > 1 ? 4 : 0;
  return field.size == &Sizes::height ? 2 : 1;
}

const FileTensor& require_tensor(const SafetensorsFile& file, const std::string& path, const char* name,
                                 const std::string& what) {
  if (const FileTensor* tensor = file.find(name)) return *tensor;
  std::vector<std::string> names;
  for (const FileTensor& tensor : file.tensors()) names.push_back(tensor.text() + " " + tensor.name);
  throw refusal("{} has no tensor '{}' ({}); it has {}", path, name, what, fmt::join(names, ", "));
}

constexpr const char* kImages = "images [n, channels, height, width]";
constexpr const char* kVideos = "videos [n, frames, channels, height, width]";

const char* images_of(const NetworkInfo& info) {
  return info.most_frames > 1 ? kVideos : kImages;
}

// What its numbers may be, in words; any where it is empty.
std::string range_of(const NetworkTensor& input) {
  const bool whole = input.kind == InputKind::labels;
  if (input.kind == InputKind::sigma) return "above 0, in fp32";
  if (!whole && input.kind != InputKind::timesteps) return "";
  return fmt::format("{}0 to {}", whole ? "whole numbers, " : "", input.range - 1);
}

// Files have images as PyTorch does, channels before height and width, and labels as numbers; the network's images are
// channels-last.
std::vector<std::int64_t> shape_in_file(const NetworkTensor& tensor) {
  if (tensor.kind == InputKind::image) return channels_first_shape(tensor.shape);
  std::vector<std::int64_t> shape = tensor.shape;
  if (tensor.kind == InputKind::labels) shape.resize(1);
  return shape;
}

// How a file has an input, in words.
std::string described(const NetworkInfo& info, const NetworkTensor& input) {
  if (input.kind == InputKind::image) return images_of(info);
  if (input.kind == InputKind::text) return fmt::format("[n, tokens, {}]", input.shape.back());
  const std::string range = range_of(input);
  return fmt::format("[{}]{}{}", fmt::join(shape_in_file(input), ", "), range.empty() ? "" : ", ", range);
}

// Throws InvalidInput on a noise level, label or token that the network cannot be asked.
void check_range(const NetworkTensor& input, const std::string& path, double number) {
  const std::string range = range_of(input);
  const auto rounded = static_cast<float>(number);
  const bool sigma = input.kind == InputKind::sigma;
  const bool inside = sigma ? rounded > 0 : rounded >= 0 && rounded <= static_cast<float>(input.range - 1);
  if (range.empty() || (inside && (!range.starts_with("whole") || number == std::floor(number)))) return;
  throw refusal("{}: {} {} is out of range ({})", path, input.name, number, range);
}

std::vector<char> input_in(const SafetensorsFile& file, const std::string& path, const Network& network,
                           const NetworkTensor& input) {
  const FileTensor& tensor = require_tensor(file, path, input.name, described(*network.info, input));
  std::vector<double> numbers = numbers_of(file, tensor, path, shape_in_file(input));
  for (const double number : numbers) check_range(input, path, number);
  if (input.kind == InputKind::labels) return one_hot(network, std::vector<int>(numbers.begin(), numbers.end()));
  if (input.kind == InputKind::image) numbers = to_channels_last(numbers, network.image);
  const Value& value = network.graph[input.value];
  std::vector<char> data(value.bytes());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    store_element(value.dtype, data.data(), static_cast<std::int64_t>(i), numbers[i]);
  return data;
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
    throw refusal("{}: tensor {} is {}; it can be F32, F16, BF16, F64, I32, I64 or U8", path, tensor.name,
                  tensor.dtype);
  if (tensor.shape != shape)
    throw refusal("{}: tensor {} is [{}], not [{}]", path, tensor.name, fmt::join(tensor.shape, ", "),
                  fmt::join(shape, ", "));
  const std::vector<std::byte> bytes = file.read(tensor);
  std::vector<double> numbers(bytes.size() / size_of(*dtype));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = load_element(*dtype, bytes.data(), static_cast<std::int64_t>(i));
    if (!std::isfinite(numbers[i])) throw refusal("{}: tensor {} has numbers that are not finite", path, tensor.name);
    if (std::fabs(numbers[i]) > std::numeric_limits<float>::max())
      throw refusal("{}: tensor {} has numbers that fp32 cannot hold: {}", path, tensor.name, numbers[i]);
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

Sizes sizes_of_inputs(const NetworkInfo& info, const Sizes& asked, const TensorOf& tensor_of, const std::string& path,
                      bool of_pictures) {
  (void)info.resolved(asked);
  Sizes sizes = asked;
  for (const NetworkTensor& input : info.build({}).inputs) {
    const FileTensor* tensor = tensor_of(input.name);
    if (tensor == nullptr) continue;
    const std::vector<std::int64_t>& shape = tensor->shape;
    const bool frame = input.kind == InputKind::image && shape.size() == 4;  // for all of a video's
    if (!frame && shape.size() != input.shape.size()) continue;
    for (const SizeField& field : size_fields()) {
      const std::size_t from_last = dimension_of(field, info, input.kind);
      if (from_last == 0 || from_last == shape.size()) continue;  // a frame's pictures are no frames
      const std::int64_t there = shape[shape.size() - from_last];
      const std::int64_t unit = of_pictures && input.kind == InputKind::image ? enlarges(info) : 1;
      const std::string where = fmt::format("{}: tensor {} is [{}]", path, tensor->name, fmt::join(shape, ", "));
      if (asked.*field.size != 0 && asked.*field.size != there)
        throw refusal("{}, of {} {}, which contradicts --size {}={}", where, field.name, there * unit, field.name,
                      asked.*field.size * unit);
      if (there < 1 || there > field.most)
        throw refusal("{}: {} {} is out of range (1 to {})", where, field.name, there, field.most);
      Sizes one;
      one.*field.size = sizes.*field.size = there;
      try {
        (void)info.resolved(one);
      } catch (const InvalidInput& error) {
        throw refusal("{}: {}", where, error.what());
      }
    }
  }
  return sizes;
}

void require_known(const SafetensorsFile& file, const std::string& path, const NetworkInfo& info,
                   const std::vector<std::string>& known) {
  for (const FileTensor& tensor : file.tensors())
    if (std::ranges::find(known, tensor.name) == known.end())
      throw refusal("{}: {} takes no tensor {}; it takes {}", path, info.name, tensor.name, listed(known, "and"));
}

std::int64_t images_in(const SafetensorsFile& file, const std::string& path, const NetworkInfo& info) {
  file.require_layout(kChannelsFirst);
  const FileTensor& x = require_tensor(file, path, "x", images_of(info));
  if (x.shape.size() != (info.most_frames > 1 ? 5 : 4) || x.shape[0] < 1)
    throw refusal("{}: tensor x is [{}], not {} with n of 1 and more", path, fmt::join(x.shape, ", "), images_of(info));
  return x.shape[0];
}

std::vector<std::vector<char>> inputs_in(const SafetensorsFile& file, const std::string& path, const Network& network) {
  std::vector<std::string> known;
  for (const NetworkTensor& input : network.inputs) known.emplace_back(input.name);
  require_known(file, path, *network.info, known);
  std::vector<std::vector<char>> inputs;
  for (const NetworkTensor& input : network.inputs) inputs.push_back(input_in(file, path, network, input));
  return inputs;
}

void write_image_tensors(const std::filesystem::path& file, const std::string& network,
                         std::span<const ImageTensor> images, std::span<const std::int64_t> labels) {
  std::vector<FileTensor> tensors;
  std::deque<std::vector<float>> turned;
  for (const auto& [name, image, numbers, video] : images) {
    std::vector<std::int64_t> shape{std::ssize(numbers) / image.elements(), image.channels, image.height, image.width};
    if (video) shape.insert(shape.begin() + 1, image.frames);
    turned.push_back(to_channels_first(numbers, image));
    tensors.push_back({name, safetensors_name(DType::fp32), shape, std::as_bytes(std::span(turned.back()))});
  }
  if (!labels.empty())
    tensors.push_back({"labels", safetensors_name(DType::int64), {std::ssize(labels)}, std::as_bytes(labels)});
  write_safetensors(file, tensors, {{"network", network}, {kLayoutKey, kChannelsFirst}});
}

}  // namespace noisefloor::pipeline
