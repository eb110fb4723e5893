#include "bench/commands/pipeline_common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/pipeline/memory_need.h"
#include "bench/sweep/suite.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

// Beside or above the program, as the problem files are.
std::filesystem::path shipped_weights(const std::string& network) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (auto folder = program.parent_path(); !error; folder = folder.parent_path()) {
    const auto file = folder / "bench" / "pipeline" / "weights" / (network + ".safetensors");
    if (std::filesystem::is_regular_file(file)) return file;
    if (folder == folder.root_path()) break;
  }
  throw InvalidInput(fmt::format("{} needs --weights FILE: only the weights of {} come with noisefloor", network,
                                 listed(networks_where([](const NetworkInfo& info) { return info.shipped; }), "and")));
}

std::unique_ptr<Checkpoint> checkpoint_of(const NetworkArguments& arguments) {
  if (arguments.weights.empty()) return std::make_unique<Checkpoint>(shipped_weights(arguments.network));
  return std::make_unique<Checkpoint>(arguments.weights, require_network(arguments.network).folder);
}

// A network as its checkpoint has it.
Network build_for(const Checkpoint& checkpoint, const NetworkInfo& info, BuildOptions options) {
  options.conditional = checkpoint.has(info.label_weight);
  options.old_names = checkpoint.has(info.old_weight);
  return build_or_say_limit(info, options);
}

// Beside what is counted, a device holds the code of kernels, which is loaded as they are first launched, and recorded
// graphs.
constexpr std::size_t kDeviceReserve = std::size_t{256} << 20;

void require_plan(const std::string& source) {
  const std::vector<std::string> named{"own", "baseline", "fastest"};
  std::error_code error;
  if (source == "naive" || std::find(named.begin(), named.end(), source) != named.end() ||
      std::filesystem::exists(source, error))
    return;
  throw InvalidInput(fmt::format("--plan: {} is not a plan: there are {}, and there is no file of that name{}", source,
                                 fmt::join(named, ", "), did_you_mean(source, named)));
}

}  // namespace

void add_inputs(OutputFiles& files, const NetworkArguments& arguments) {
  if (!arguments.weights.empty())
    for (const auto& file : files_of_checkpoint(arguments.weights, require_network(arguments.network).folder))
      files.add_input("--weights", file);
  std::error_code error;
  if (std::filesystem::is_regular_file(arguments.plan, error)) files.add_input("--plan", arguments.plan);
}

std::string known_networks() {
  return listed(networks_where([](const NetworkInfo&) { return true; }), "or");
}

void add_network_options(CLI::App& command, NetworkArguments& arguments) {
  command
      .add_option("network", arguments.network,
                  known_networks() + " (noisefloor list networks has those with problem files)")
      ->required();
  command.add_option("--weights", arguments.weights,
                     "Checkpoint in safetensors, with the original's names: a file, the index of its shards, or the "
                     "folder that has them, also of a diffusers pipeline (default: what comes with noisefloor)");
  command.add_option("--device", arguments.device, "CUDA device number, or 'host' (default: 0 where there is one)");
  command.add_option("--dtype", arguments.dtype, "bf16, fp16 or fp32 (default: bf16 on a GPU, fp32 on the host)");
  command.add_option("--plan", arguments.plan, "own, baseline, fastest, or a plan.csv of `noisefloor roofline`")
      ->capture_default_str();
  command.add_flag("--strict", arguments.strict,
                   "Refuse problems that the plan does not name, rather than measure them");
  command
      .add_option("--programmatic", arguments.programmatic,
                  "on: our kernels start while the one before ends, where the device can (sm_90 and newer); or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

void check_weights(const NetworkArguments& arguments, BuildOptions options) {
  const std::unique_ptr<Checkpoint> checkpoint = checkpoint_of(arguments);
  checkpoint->check(build_for(*checkpoint, require_network(arguments.network), options));
}

OpenNetwork open_network(const NetworkArguments& arguments, BuildOptions options,
                         const std::function<void(const Network&)>& check, const Beside& beside,
                         std::unique_ptr<Platform> platform) {
  const NetworkInfo& info = require_network(arguments.network);
  require_plan(arguments.plan);
  OpenNetwork open;
  open.checkpoint = checkpoint_of(arguments);
  open.platform = platform ? std::move(platform) : open_platform(arguments.device);
  const PlatformDescription& description = open.platform->description();
  const std::string dtype = !arguments.dtype.empty() ? arguments.dtype : description.is_host ? "fp32" : "bf16";
  options.dtype = require_dtype(*require_op("conv2d").workload, dtype);
  open.network = std::make_unique<Network>(build_for(*open.checkpoint, info, options));
  check(*open.network);
  open.checkpoint->check(*open.network);
  const std::size_t free_before = open.platform->free_bytes();
  std::optional<Plan> plan;
  try {
    plan.emplace(*open.platform, suite(), count_problems(open.network->graph),
                 Plan::Options{arguments.plan, arguments.strict});
    open.executor = std::make_unique<Executor>(*open.platform, *open.network, *open.checkpoint, *plan);
    open.executor->set_programmatic(arguments.programmatic == "on");
    beside.make(open);
  } catch (const OutOfMemory& error) {
    // A smaller batch is the same list of nodes.
    const auto choice_of = [&](std::size_t node) -> const Implementation* {
      return plan ? plan->choice(problem_id(open.network->graph.nodes().at(node))).get() : nullptr;
    };
    const auto bytes_of = [&](const Network& network) {
      auto bytes = executor_bytes(network, description, [&](std::size_t node) -> const AnyVariant* {
        const Implementation* const choice = choice_of(node);
        return choice != nullptr ? choice->variant() : nullptr;
      });
      return bytes ? std::optional(*bytes + beside.bytes(network)) : bytes;
    };
    const std::size_t reserve = description.is_host ? 0 : std::min(kDeviceReserve, free_before);
    const std::int64_t fits = largest_fitting_batch(info, options, free_before - reserve, bytes_of);
    bool vendors = false;
    for (std::size_t node = 0; node < open.network->graph.nodes().size(); ++node)
      vendors = vendors || (choice_of(node) != nullptr && !choice_of(node)->own());
    throw OutOfMemory(fmt::format("a batch of {} does not fit: {}; {}{}", options.batch, error.what(),
                                  fits > 0 ? fmt::format("a batch of {} would", fits) : "no batch would",
                                  vendors ? ", as far as vendors' libraries do not work in more" : ""));
  }
  return open;
}

}  // namespace noisefloor
