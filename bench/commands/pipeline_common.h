// What the commands that run networks share: opening one with its weights.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/executor.h"

namespace noisefloor {

struct NetworkArguments {
  std::string network, weights, device, dtype, plan = "own";
  bool strict = false;
  std::string programmatic = "on";
};
std::string known_networks();  // "a, b or c", for help
// Adds NETWORK, --weights, --device, --dtype, --plan, --strict and --programmatic.
void add_network_options(CLI::App& command, NetworkArguments& arguments);

// A platform with a network on it. The checkpoint decides whether the network is conditional.
struct OpenNetwork {
  std::unique_ptr<Platform> platform;
  std::unique_ptr<pipeline::Checkpoint> checkpoint;
  std::unique_ptr<networks::Network> network;
  std::unique_ptr<pipeline::Executor> executor;
};
// What the caller puts beside the network on the device, and how many bytes that takes.
struct Beside {
  std::function<std::size_t(const networks::Network&)> bytes = [](const networks::Network&) { return std::size_t{0}; };
  std::function<void(OpenNetwork&)> make = [](OpenNetwork&) {};
};
// `check` looks at the network, its inputs and options before anything is measured, or written into a plan. Throws what
// it does, InvalidInput, OutOfMemory (saying which batch would fit), DeviceError. `platform`: null for that of
// arguments.device.
OpenNetwork open_network(const NetworkArguments& arguments, networks::BuildOptions options,
                         const std::function<void(const networks::Network&)>& check, const Beside& beside = {},
                         std::unique_ptr<Platform> platform = nullptr);

// Throws what open_network would of weights that are not the network's, before anything is measured. `options` has the
// dtype.
void check_weights(const NetworkArguments& arguments, networks::BuildOptions options);

// Weights and plan, so that no output is written over them.
void add_inputs(OutputFiles& files, const NetworkArguments& arguments);

}  // namespace noisefloor
