// noisefloor forward: one call of a network on a user's tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/commands/add_command.h"
#include "bench/commands/breakdown_common.h"
#include "bench/commands/network_sizes.h"
#include "bench/pipeline/finite.h"
#include "bench/pipeline/network_tensors.h"
#include "kernels/core/listed.h"
#include "networks/inputs.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

struct ForwardArguments {
  NetworkArguments network;
  BreakdownArguments breakdown;
  Sizes sizes;
  std::string input, output;
};

const FileTensor& require_tensor(const SafetensorsFile& file, const std::string& path, const char* name,
                                 const std::string& what) {
  if (const FileTensor* tensor = file.find(name)) return *tensor;
  std::vector<std::string> names;
  for (const FileTensor& tensor : file.tensors()) names.push_back(tensor.text() + " " + tensor.name);
  throw InvalidInput(fmt::format("{} has no tensor '{}' ({}); it has {}", path, name, what, fmt::join(names, ", ")));
}

void require_known(const SafetensorsFile& file, const std::string& path, const Network& network) {
  std::vector<std::string> known;
  for (const NetworkTensor& input : network.inputs) known.emplace_back(input.name);
  for (const FileTensor& tensor : file.tensors())
    if (std::find(known.begin(), known.end(), tensor.name) == known.end())
      throw InvalidInput(fmt::format("{}: {} takes no tensor {}; it takes {}", path, network.name(), tensor.name,
                                     listed(known, "and")));
}

constexpr const char* kImages = "images [n, channels, height, width]";
constexpr const char* kVideos = "videos [n, frames, channels, height, width]";

const char* images_of(const NetworkInfo& info) {
  return info.most_frames > 1 ? kVideos : kImages;
}

// How a file has an input, in words.
std::string described(const NetworkInfo& info, const NetworkTensor& input) {
  switch (input.kind) {
    case NetworkTensor::Kind::image:
      return images_of(info);
    case NetworkTensor::Kind::timesteps:
      return fmt::format("[n], 0 to {}", input.range - 1);
    case NetworkTensor::Kind::sigma:
      return "[n], above 0";
    case NetworkTensor::Kind::labels:
      return "[n] class numbers";
    case NetworkTensor::Kind::tokens:
      return fmt::format("[{}], 0 to {}", fmt::join(input.shape, ", "), input.range - 1);
    case NetworkTensor::Kind::text:
      return fmt::format("[n, tokens, {}]", input.shape.back());
    case NetworkTensor::Kind::conditioning:
      break;
  }
  return fmt::format("[{}]", fmt::join(input.shape, ", "));
}

// Files have images as PyTorch does, channels before height and width, and labels as numbers; the network's images are
// channels-last.
std::vector<std::int64_t> shape_in_file(const NetworkTensor& tensor) {
  if (tensor.kind == NetworkTensor::Kind::image) return channels_first_shape(tensor.shape);
  std::vector<std::int64_t> shape = tensor.shape;
  if (tensor.kind == NetworkTensor::Kind::labels) shape.resize(1);
  return shape;
}

std::vector<int> labels_of(const std::vector<double>& numbers, const std::string& path, const Network& network) {
  std::vector<int> labels;
  for (const double number : numbers) {
    if (number != std::floor(number))
      throw InvalidInput(fmt::format("{}: label {} is not a whole number", path, number));
    if (number < 0 || number >= static_cast<double>(network.classes))
      throw InvalidInput(
          fmt::format("{}: label {}: {} has classes 0 to {}", path, number, network.name(), network.classes - 1));
    labels.push_back(static_cast<int>(number));
  }
  return labels;
}

// Throws InvalidInput on a noise level or token that the network cannot be asked.
void check_range(const NetworkTensor& input, const std::string& path, double number) {
  const auto rounded = static_cast<float>(number);
  const auto refuse = [&](bool wrong, const std::string& range) {
    if (wrong) throw InvalidInput(fmt::format("{}: {} {} is out of range ({})", path, input.name, number, range));
  };
  const bool outside = rounded < 0 || rounded > static_cast<float>(input.range - 1);
  if (input.kind == NetworkTensor::Kind::sigma) refuse(rounded <= 0, "above 0, in fp32");
  if (input.kind == NetworkTensor::Kind::timesteps) refuse(outside, fmt::format("0 to {}", input.range - 1));
  if (input.kind == NetworkTensor::Kind::tokens)
    refuse(outside || number != std::floor(number), fmt::format("whole numbers, 0 to {}", input.range - 1));
}

// An input of the network from the file, in the layout and dtype that it is uploaded in.
std::vector<char> read_input(const SafetensorsFile& file, const std::string& path, const Network& network,
                             const NetworkTensor& input) {
  const FileTensor& tensor = require_tensor(file, path, input.name, described(*network.info, input));
  std::vector<double> numbers = numbers_of(file, tensor, path, shape_in_file(input));
  if (input.kind == NetworkTensor::Kind::labels) return one_hot(network, labels_of(numbers, path, network));
  for (const double number : numbers) check_range(input, path, number);
  if (input.kind == NetworkTensor::Kind::image) numbers = to_channels_last(numbers, network.image);
  const Value& value = network.graph[input.value];
  std::vector<char> data(value.bytes());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    store_element(value.dtype, data.data(), static_cast<std::int64_t>(i), numbers[i]);
  return data;
}

int forward(const ForwardArguments& arguments) {
  const NetworkInfo& info = require_network(arguments.network.network);
  OutputFiles files;
  add_inputs(files, arguments.network);
  files.add_input("--input", arguments.input);
  files.add("--output", arguments.output);
  check_breakdown(arguments.breakdown, arguments.network, files);
  const SafetensorsFile file(arguments.input);
  file.require_layout(kChannelsFirst);
  const FileTensor& x = require_tensor(file, arguments.input, "x", images_of(info));
  if (x.shape.size() != (info.most_frames > 1 ? 5 : 4) || x.shape[0] < 1)
    throw InvalidInput(fmt::format("{}: tensor x is [{}], not {} with n of 1 and more", arguments.input,
                                   fmt::join(x.shape, ", "), images_of(info)));
  const std::int64_t n = x.shape[0];
  const Sizes sizes = sizes_of_inputs(info, arguments.sizes, file.tensors(), arguments.input);
  std::vector<std::vector<char>> inputs;
  OpenNetwork open = open_network(arguments.network, {.batch = n, .sizes = sizes}, [&](const Network& network) {
    require_known(file, arguments.input, network);
    for (const NetworkTensor& input : network.inputs)
      inputs.push_back(read_input(file, arguments.input, network, input));
  });
  const Network& network = *open.network;
  open.say_what_is_read(arguments.network.verbose);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    open.platform->upload(open.executor->data(network.inputs[i].value), inputs[i].data(), inputs[i].size());

  open.platform->synchronize();
  const auto start = std::chrono::steady_clock::now();
  throw_if_failed(open.executor->enqueue());
  open.platform->synchronize();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const NetworkTensor& result = network.outputs.front();
  std::vector<float> output(static_cast<std::size_t>(network.graph[result.value].elements()));
  open.platform->download(output.data(), open.executor->data(result.value), output.size() * sizeof(float));
  require_finite(output, static_cast<std::int64_t>(output.size()) / n, 0);
  break_down(
      arguments.breakdown, arguments.network, open, [&] { return open.executor->enqueue(); },
      "one call of " + images_in_words(n, network.image.frames > 1), files);

  const std::span shape(result.shape);  // a decoder's is larger, and other channels there may be
  output = transposed(output, shape[shape.size() - 3] * shape[shape.size() - 2], shape.back());
  const FileTensor tensor{result.name, safetensors_name(DType::fp32), shape_in_file(result),
                          std::as_bytes(std::span(output))};
  write_safetensors(files.partial("--output"), std::span(&tensor, 1),
                    {{"network", network.name()}, {kLayoutKey, kChannelsFirst}});
  files.commit();
  fmt::print("{} of {}, first call {:.1f} ms, {:.1f} MB on the device; wrote {}\n", network.name(),
             images_in_words(n, network.image.frames > 1), ms, static_cast<double>(open.executor->bytes()) / 1e6,
             arguments.output);
  return kDone;
}

}  // namespace

void add_forward_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "forward", "Call a network once, on the tensors of a safetensors file", forward);
  add_network_options(command, arguments.network);
  add_breakdown_options(command, arguments.breakdown);
  add_size_options(command, arguments.sizes, "as the input has it");
  command
      .add_option("--input", arguments.input,
                  fmt::format("Safetensors file: x [n, channels, height, width] (channels-first; videos: [n, frames, "
                              "channels, height, width]); timesteps [n] ({}) or sigma [n]; labels [n] if the weights "
                              "are conditional; encoder_hidden_states [n, tokens, width] ({}); a message names any "
                              "other input that is missing, with its shape",
                              listed(networks_where([](const NetworkInfo& info) {
                                       return info.prediction == sampler_step::Prediction::noise && !info.decodes();
                                     }),
                                     "and"),
                              listed(networks_where([](const NetworkInfo& info) { return info.tokens > 0; }), "and")))
      ->required();
  add_output_file(command, "--output", arguments.output, "File to write: output [n, channels, height, width], fp32")
      ->required();
}

}  // namespace noisefloor
