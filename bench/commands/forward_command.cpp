// noisefloor forward: one call of a network on a user's tensors.
#include <fmt/format.h>

#include <chrono>

#include "bench/commands/commands.h"
#include "bench/commands/pipeline_options.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/pipeline/pictures.h"
#include "bench/sweep/suite.h"
#include "kernels/core/fields.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

struct ForwardCommand {
  ModelRequest model;
  BreakdownArguments breakdown;
  Sizes sizes;
  std::string device, input, output;
};

// One call, from its inputs on the device to its output there. Returns its milliseconds.
double call(Platform& platform, Executor& executor) {
  platform.synchronize();
  const auto start = std::chrono::steady_clock::now();
  throw_if_failed(executor.enqueue());
  platform.synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

int forward(const ForwardCommand& command) {
  const NetworkInfo& info = require_network(command.model.network);
  OutputFiles files;
  add_inputs(files, command.model);
  files.add_input("--input", command.input);
  files.add("--output", command.output);
  check_breakdown(command.breakdown, command.model.plan, command.device, files);
  const SafetensorsFile file(command.input);
  const std::int64_t n = images_in(file, command.input, info);
  const Sizes sizes = sizes_of_inputs(
      info, command.sizes, [&](std::string_view input) { return file.find(input); }, command.input);
  const std::unique_ptr<Platform> platform = open_platform(command.device);
  Model model(command.model.settings(info), command.model, {.batch = n, .sizes = sizes}, {*platform, suite()});
  const Network& network = model.network;
  const std::vector<std::vector<char>> inputs = inputs_in(file, command.input, network);
  RunningModel running(model);
  model.say_what_is_read();
  Executor& executor = running.executor();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    platform->upload(executor.data(network.inputs[i].value), inputs[i].data(), inputs[i].size());
  const double ms = call(*platform, executor);

  const NetworkTensor& result = network.outputs.front();
  std::vector<float> output(static_cast<std::size_t>(network.graph[result.value].elements()));
  platform->download(output.data(), executor.data(result.value), output.size() * sizeof(float));
  require_finite(output, std::ssize(output) / n, 0);
  const std::string images = images_in_words(n, network.image.frames > 1);
  if (command.breakdown.wanted())
    break_down(
        command.breakdown, *platform, executor, command.model.plan, [&] { return executor.enqueue(); },
        "one call of " + images, files);

  const std::vector<std::int64_t>& shape = result.shape;  // a decoder's is larger, and other channels there may be
  const std::size_t d = shape.size();
  const bool video = d == 5;
  const ImageTensor tensor{
      result.name, {shape[d - 3], shape[d - 2], shape[d - 1], video ? shape[1] : 1}, output, video};
  files.write("--output",
              [&](const fs::path& place) { write_image_tensors(place, network.name(), std::span(&tensor, 1)); });
  files.commit();
  fmt::print("{} of {}, first call {:.1f} ms, {:.1f} MB on the device; wrote {}\n", network.name(), images, ms,
             static_cast<double>(executor.bytes()) / 1e6, command.output);
  return kDone;
}

}  // namespace

void add_forward_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "forward", "Call a network once, on the tensors of a safetensors file", forward);
  add_network_options(command, arguments.model, arguments.device);
  add_breakdown_options(command, arguments.breakdown);
  add_size_option(command, arguments.sizes, "as the input has it");
  add_without_option(command, arguments.model, nullptr);
  command
      .add_option("--input", arguments.input,
                  "Safetensors file, channels-first: x [n, channels, height, width] (videos: [n, frames, channels, "
                  "height, width]); timesteps [n] or sigma [n]; labels [n] if the weights are conditional; "
                  "encoder_hidden_states [n, tokens, width] if it reads text; a message names any input that is "
                  "missing, with its shape")
      ->required();
  add_output_file(command, "--output", arguments.output, "File to write: output [n, channels, height, width], fp32")
      ->required();
}

}  // namespace noisefloor
