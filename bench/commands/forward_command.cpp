// noisefloor forward: one call of a network on a user's tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "bench/commands/breakdown_common.h"
#include "bench/pipeline/finite.h"

namespace noisefloor {
namespace {

using namespace pipeline;

struct ForwardArguments {
  NetworkArguments network;
  BreakdownArguments breakdown;
  std::string input, output;
};

const FileTensor& require_tensor(const SafetensorsFile& file, const std::string& path, const char* name,
                                 const char* what) {
  if (const FileTensor* tensor = file.find(name)) return *tensor;
  std::vector<std::string> names;
  for (const FileTensor& tensor : file.tensors()) names.push_back(tensor.text() + " " + tensor.name);
  throw InvalidInput(fmt::format("{} has no tensor '{}' ({}); it has {}", path, name, what, fmt::join(names, ", ")));
}

std::vector<double> numbers_of(const FileTensor& tensor, const std::string& path,
                               const std::vector<std::int64_t>& shape) {
  const auto dtype = dtype_of_safetensors(tensor.dtype);
  if (!dtype)
    throw InvalidInput(fmt::format("{}: tensor {} is {}; it can be F32, F16, BF16, F64, I32, I64 or U8", path,
                                   tensor.name, tensor.dtype));
  if (tensor.shape != shape)
    throw InvalidInput(fmt::format("{}: tensor {} is [{}], not [{}]", path, tensor.name, fmt::join(tensor.shape, ", "),
                                   fmt::join(shape, ", ")));
  std::vector<std::max_align_t> aligned(tensor.data.size() / sizeof(std::max_align_t) + 1);
  std::memcpy(aligned.data(), tensor.data.data(), tensor.data.size());
  std::vector<double> numbers(tensor.data.size() / size_of(*dtype));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = load_element(*dtype, aligned.data(), static_cast<std::int64_t>(i));
    if (!std::isfinite(numbers[i]))
      throw InvalidInput(fmt::format("{}: tensor {} has numbers that are not finite", path, tensor.name));
    if (std::fabs(numbers[i]) > std::numeric_limits<float>::max())
      throw InvalidInput(
          fmt::format("{}: tensor {} has numbers that fp32 cannot hold: {}", path, tensor.name, numbers[i]));
  }
  return numbers;
}

// Files have images as PyTorch does, [n, channels, h, w]; the network's are channels-last.
std::vector<float> to_channels_last(const std::vector<double>& nchw, std::int64_t n, std::int64_t channels,
                                    std::int64_t pixels) {
  std::vector<float> result(nchw.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t p = 0; p < pixels; ++p)
        result[static_cast<std::size_t>((i * pixels + p) * channels + c)] =
            static_cast<float>(nchw[static_cast<std::size_t>((i * channels + c) * pixels + p)]);
  return result;
}

std::vector<float> to_channels_first(const std::vector<float>& nhwc, std::int64_t n, std::int64_t channels,
                                     std::int64_t pixels) {
  std::vector<float> result(nhwc.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t p = 0; p < pixels; ++p)
        result[static_cast<std::size_t>((i * channels + c) * pixels + p)] =
            nhwc[static_cast<std::size_t>((i * pixels + p) * channels + c)];
  return result;
}

void upload_floats(OpenNetwork& open, ValueId id, const std::vector<float>& numbers) {
  open.platform->upload(open.executor->data(id), numbers.data(), numbers.size() * sizeof(float));
}

// What the file holds, as the network takes it.
struct Inputs {
  std::vector<float> x, levels;
  std::vector<int> labels;
};

Inputs read_inputs(const SafetensorsFile& file, const std::string& path, const Network& network) {
  const std::int64_t n = network.batch;
  Inputs inputs;
  const FileTensor& x = require_tensor(file, path, "x", "images [n, channels, size, size]");
  inputs.x = to_channels_last(numbers_of(x, path, {n, network.channels, network.size, network.size}), n,
                              network.channels, network.pixels());
  const bool steps = network.timesteps.has_value();
  const char* level_name = steps ? "timesteps" : "sigma";
  const FileTensor& level = require_tensor(file, path, level_name, steps ? "[n], 0 to 999" : "[n], above 0");
  for (const double number : numbers_of(level, path, {n})) {
    const auto rounded = static_cast<float>(number);
    if (steps ? rounded < 0 || rounded > 999 : rounded <= 0)
      throw InvalidInput(fmt::format("{}: {} {} is out of range ({})", path, level_name, number,
                                     steps ? "0 to 999" : "above 0, in fp32"));
    inputs.levels.push_back(rounded);
  }
  if (network.classes == 0) return inputs;
  const FileTensor& labels = require_tensor(file, path, "labels", "[n] class numbers");
  for (const double number : numbers_of(labels, path, {n})) {
    if (number != std::floor(number)) throw InvalidInput(fmt::format("{}: label {} is no whole number", path, number));
    if (number < 0 || number >= static_cast<double>(network.classes))
      throw InvalidInput(
          fmt::format("{}: label {}: {} has classes 0 to {}", path, number, network.name, network.classes - 1));
    inputs.labels.push_back(static_cast<int>(number));
  }
  return inputs;
}

int forward(const ForwardArguments& arguments) {
  require_network(arguments.network.network);
  OutputFiles files;
  add_inputs(files, arguments.network);
  files.add_input("--input", arguments.input);
  files.add("--output", arguments.output);
  check_breakdown(arguments.breakdown, arguments.network, files);
  const SafetensorsFile file(arguments.input);
  const FileTensor& x = require_tensor(file, arguments.input, "x", "images [n, channels, size, size]");
  if (x.shape.size() != 4 || x.shape[0] < 1)
    throw InvalidInput(fmt::format("{}: tensor x is [{}], not [n, channels, size, size] with n of 1 and more",
                                   arguments.input, fmt::join(x.shape, ", ")));
  const std::int64_t n = x.shape[0];
  Inputs inputs;
  OpenNetwork open = open_network(arguments.network, {.batch = n}, [&](const Network& network) {
    inputs = read_inputs(file, arguments.input, network);
  });
  const Network& network = *open.network;
  upload_floats(open, network.x, inputs.x);
  upload_floats(open, network.timesteps ? *network.timesteps : *network.sigma, inputs.levels);
  if (network.classes > 0) open.executor->set_labels(inputs.labels);

  open.platform->synchronize();
  const auto start = std::chrono::steady_clock::now();
  throw_if_failed(open.executor->enqueue());
  open.platform->synchronize();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const std::int64_t per_image = network.pixels() * network.out_channels;
  std::vector<float> output(static_cast<std::size_t>(n * per_image));
  open.platform->download(output.data(), open.executor->data(network.output), output.size() * sizeof(float));
  require_finite(output, per_image, 0);
  break_down(
      arguments.breakdown, arguments.network, open, [&] { return open.executor->enqueue(); },
      fmt::format("one call of {} images", n), files);

  output = to_channels_first(output, n, network.out_channels, network.pixels());
  const FileTensor tensor{"output",
                          safetensors_name(DType::fp32),
                          {n, network.out_channels, network.size, network.size},
                          std::as_bytes(std::span(output))};
  write_safetensors(files.partial("--output"), std::span(&tensor, 1), {{"network", network.name}});
  files.commit();
  fmt::print("{} of {} images, first call {:.1f} ms, {:.1f} MB on the device; wrote {}\n", network.name, n, ms,
             static_cast<double>(open.executor->bytes()) / 1e6, arguments.output);
  return kDone;
}

}  // namespace

void add_forward_command(CLI::App& app, CommandResult result) {
  CLI::App* command = app.add_subcommand("forward", "One denoising call of a network on tensors of a safetensors file");
  auto arguments = std::make_shared<ForwardArguments>();
  add_network_options(*command, arguments->network);
  add_breakdown_options(*command, arguments->breakdown);
  command
      ->add_option("--input", arguments->input,
                   "x [n, channels, size, size]; timesteps [n] (adm64) or sigma [n]; labels [n] where the weights are "
                   "conditional")
      ->required();
  command->add_option("--output", arguments->output, "File to write: output [n, channels, size, size], fp32")
      ->required();
  command->callback([=] { *result = [=] { return forward(*arguments); }; });
}

}  // namespace noisefloor
