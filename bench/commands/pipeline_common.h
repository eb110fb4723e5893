// What the commands that run networks share: opening one with its weights.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/checkpoint_settings.h"
#include "bench/pipeline/executor.h"

namespace noisefloor {

struct NetworkArguments {
  std::string network, weights, device, dtype, plan = "own";
  bool strict = false;
  std::string programmatic = "on", fused_norm = "off", folded_skips = "on";
  std::string settings = "folder";
  bool verbose = false;
};
std::string known_networks();                              // "a, b or c", for help
std::string images_in_words(std::int64_t n, bool videos);  // "1 image", "2 videos"
// Adds NETWORK, --weights, --settings, --verbose, --device, --dtype, --plan, --strict, --programmatic, --fused-norm and
// --folded-skips.
void add_network_options(CLI::App& command, NetworkArguments& arguments);

// A network and its weights, and when started, on a platform. The checkpoint decides whether the network is
// conditional.
struct OpenNetwork {
  std::shared_ptr<Platform> platform;
  std::unique_ptr<pipeline::Checkpoint> checkpoint;
  std::unique_ptr<const pipeline::CheckpointSettings> settings;  // the network is of its row
  networks::BuildOptions options;
  std::unique_ptr<networks::Network> network;
  std::unique_ptr<pipeline::Plan> plan;
  std::unique_ptr<pipeline::Executor> executor;
  bool checked = false;

  void check_weights();  // where nobody did; throws InvalidInput on weights that are not the network's
  // On stderr, which checkpoint is read and how, where a user may not expect it; with `verbose` also all that is
  // ignored.
  void say_what_is_read(bool verbose) const;
};
// What the caller puts beside the network on the device, and how many bytes that takes.
struct Beside {
  std::function<std::size_t(const networks::Network&)> bytes = [](const networks::Network&) { return std::size_t{0}; };
  std::function<void(OpenNetwork&)> make = [](OpenNetwork&) {};
};
// What the folder of arguments.weights says of a network, unless --settings own is given.
pipeline::CheckpointSettings settings_of(const networks::NetworkInfo& info, const NetworkArguments& arguments,
                                         bool sampled = false, const pipeline::GivenOptions& given = {});
// The same of the decoder of what a network draws: its weights are in the same pipeline.
NetworkArguments decoder_arguments(const networks::NetworkInfo& info, const NetworkArguments& arguments);
// Throws InvalidInput where a network of latents has weights that are no folder with its decoder.
void require_decoder(const networks::NetworkInfo& info, const NetworkArguments& decoder);
// Of a decoder beside a network of that dtype: fp32 where it cannot be run in fp16, or its folder says force_upcast.
std::string decoder_dtype(const networks::NetworkInfo& decoder, const NetworkArguments& arguments, DType dtype);
// Builds it, and looks at no weights yet. `platform`: null for that of arguments.device. Throws InvalidInput,
// DeviceError.
OpenNetwork build_network(pipeline::CheckpointSettings settings, const NetworkArguments& arguments,
                          networks::BuildOptions options, std::shared_ptr<Platform> platform = nullptr);
// Checks the weights, plans, and puts it on the device; again after its executor was reset, with the plan that it has.
// Throws InvalidInput, OutOfMemory (saying which batch, or how many frames, would fit), DeviceError.
void start_network(OpenNetwork& open, const NetworkArguments& arguments, const Beside& beside = {});
// Both. `check` looks at the network, its inputs and options before anything is measured, or written into a plan.
OpenNetwork open_network(const NetworkArguments& arguments, networks::BuildOptions options,
                         const std::function<void(const networks::Network&)>& check, const Beside& beside = {},
                         std::shared_ptr<Platform> platform = nullptr);
// Of free memory, what a network can have: beside what is counted, a device holds the code of kernels, which is loaded
// as they are first launched, and recorded graphs.
std::size_t bytes_for_networks(Platform& platform);

// Weights and plan, so that no output is written over them.
void add_inputs(OutputFiles& files, const NetworkArguments& arguments);

}  // namespace noisefloor
