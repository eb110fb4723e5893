#include "bench/commands/pipeline_common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <utility>

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

constexpr std::size_t kDeviceReserve = std::size_t{256} << 20;

// Why a network does not fit, and what would: a smaller batch, most of whose nodes are these, or fewer frames.
std::string what_would_fit(const OpenNetwork& open, const Beside& beside, std::size_t available, const char* why) {
  const Network& network = *open.network;
  const auto choice_of = [&](std::size_t node) -> const Implementation* {
    return open.plan ? open.plan->choice(problem_id(network.graph.nodes().at(node))).get() : nullptr;
  };
  std::map<std::pair<std::string, const Op*>, const AnyVariant*> variants;
  for (std::size_t node = 0; node < network.graph.nodes().size(); ++node)
    if (const Implementation* const choice = choice_of(node); choice != nullptr)
      variants[{network.graph.nodes()[node].name, network.graph.nodes()[node].op}] = choice->variant();
  const auto largest = [&](const BuildOptions& options, std::int64_t& (*size)(BuildOptions&), bool same_nodes) {
    return largest_fitting(
        *network.info, options, available,
        [&](const Network& smaller) {
          const auto bytes =
              executor_bytes(smaller, open.platform->description(), [&](std::size_t index) -> const AnyVariant* {
                const Node& node = smaller.graph.nodes().at(index);
                const auto found = variants.find({node.name, node.op});
                return same_nodes && found != variants.end() ? found->second : nullptr;
              });
          return bytes ? std::optional(*bytes + beside.bytes(smaller)) : bytes;
        },
        size);
  };
  bool vendors = false;
  for (std::size_t node = 0; node < network.graph.nodes().size(); ++node)
    vendors = vendors || (choice_of(node) != nullptr && !choice_of(node)->own());
  std::string text = fmt::format("{}: a batch of {} does not fit: {}; ", network.name(), network.batch, why);
  BuildOptions one = open.options;
  one.batch = 1;
  one.sizes.frames = network.image.frames;
  if (const std::int64_t batch = largest(open.options, batch_of, true); batch > 0)
    text += fmt::format("a batch of {} would", batch);
  else if (const std::int64_t frames = largest(one, frames_of, false); frames > 0)
    text += fmt::format("no batch of {} frames would; of one video {} frames would", network.image.frames, frames);
  else
    text += "no batch would";
  return text + (vendors ? ", as far as vendors' libraries do not work in more" : "");
}

void require_plan(const std::string& source) {
  const std::vector<std::string> named(std::begin(kPools), std::end(kPools));
  std::error_code error;
  if (std::find(named.begin(), named.end(), source) != named.end() || std::filesystem::exists(source, error)) return;
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

std::string images_in_words(std::int64_t n, bool videos) {
  return fmt::format("{} {}{}", n, videos ? "video" : "image", n == 1 ? "" : "s");
}

void add_network_options(CLI::App& command, NetworkArguments& arguments) {
  command
      .add_option("network", arguments.network,
                  known_networks() + " (noisefloor list networks has those with problem files)")
      ->required();
  command.add_option("--weights", arguments.weights,
                     "Checkpoint in safetensors, with the original's tensor names: a file, the index of its shards, "
                     "their folder, or that of a diffusers pipeline (default: the shipped weights)");
  command
      .add_option(
          "--settings", arguments.settings,
          "folder: as scheduler/, unet/ and vae/ of --weights say in their JSON, where no option says otherwise; "
          "own: the network's own")
      ->check(CLI::IsMember({"folder", "own"}))
      ->capture_default_str();
  command.add_flag("--verbose", arguments.verbose, "List each setting, its value and where it comes from, on stderr");
  add_device_option(command, arguments.device);
  command.add_option("--dtype", arguments.dtype, "bf16, fp16 or fp32 (default: bf16 on a GPU, fp32 on the host)");
  command.add_option("--plan", arguments.plan, "own, baseline, fastest, naive, or a plan.csv of `noisefloor roofline`")
      ->capture_default_str();
  command.add_flag("--strict", arguments.strict, "Refuse problems that the plan does not name; do not measure them");
  command
      .add_option("--programmatic", arguments.programmatic,
                  "on: our kernels start while the kernel before them ends (sm_90 and newer)")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command
      .add_option("--fused-norm", arguments.fused_norm,
                  "on: convolutions normalise their input themselves (plan own or fastest, on sm_90)")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command
      .add_option(
          "--folded-skips", arguments.folded_skips,
          "on: convolutions add a block's skip and its 1x1, or its upsampled skip, themselves, so none of these nor a "
          "concatenation is written, and norms halve an image (plan own or fastest, on sm_90)")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

std::size_t bytes_for_networks(Platform& platform) {
  const std::size_t free = platform.free_bytes();
  return free - (platform.description().is_host ? 0 : std::min(kDeviceReserve, free));
}

CheckpointSettings settings_of(const NetworkInfo& info, const NetworkArguments& arguments, bool sampled,
                               const GivenOptions& given) {
  if (arguments.weights.empty() || arguments.settings == "own") return {.row = info};
  const auto file = find_checkpoint(arguments.weights, info.folder);  // where there is none, opening it says so
  return file ? checkpoint_settings(info, *file, sampled, given) : CheckpointSettings{.row = info};
}

NetworkArguments decoder_arguments(const NetworkInfo& info, const NetworkArguments& arguments) {
  NetworkArguments decoder = arguments;
  decoder.network = info.decoder;
  const auto file = find_checkpoint(arguments.weights, info.folder);
  if (const auto folder = file ? pipeline_folder(*file) : std::nullopt) decoder.weights = folder->string();
  return decoder;
}

void require_decoder(const NetworkInfo& info, const NetworkArguments& decoder) {
  if (std::error_code error; *info.decoder != '\0' && !std::filesystem::is_directory(decoder.weights, error))
    throw InvalidInput(
        fmt::format("{} draws latents: --weights is the folder of a diffusers pipeline, with {}/ and, for {}, {}/",
                    info.name, info.folder, info.decoder, require_network(info.decoder).folder));
}

std::string decoder_dtype(const NetworkInfo& decoder, const NetworkArguments& arguments, DType dtype) {
  const bool upcast = *decoder.no_fp16 != '\0' || settings_of(decoder, arguments).upcast;
  return to_string(dtype == DType::fp16 && upcast ? DType::fp32 : dtype);
}

OpenNetwork build_network(CheckpointSettings settings, const NetworkArguments& arguments, BuildOptions options,
                          std::shared_ptr<Platform> platform) {
  require_plan(arguments.plan);
  OpenNetwork open;
  open.settings = std::make_unique<const CheckpointSettings>(std::move(settings));
  const NetworkInfo& info = open.settings->row;
  open.checkpoint = arguments.weights.empty() ? std::make_unique<Checkpoint>(shipped_weights(info.name))
                                              : std::make_unique<Checkpoint>(arguments.weights, info.folder);
  open.checkpoint->drop_prefix(info);
  open.platform = platform ? std::move(platform) : open_platform(arguments.device);
  const std::string dtype = !arguments.dtype.empty()               ? arguments.dtype
                            : open.platform->description().is_host ? "fp32"
                                                                   : "bf16";
  options.dtype = require_dtype(*require_op("conv2d").workload, dtype);
  options.conditional = open.checkpoint->has(info.label_weight);
  options.old_names = open.checkpoint->has(info.old_weight);
  options.fuse_norms =
      arguments.fused_norm == "on" && pipeline::fuses_norms(suite(), *open.platform, arguments.plan, options.dtype);
  options.fold_skips =
      arguments.folded_skips == "on" && pipeline::folds_skips(suite(), *open.platform, arguments.plan, options.dtype);
  open.options = options;
  open.network = std::make_unique<Network>(build_or_say_limit(info, options));
  return open;
}

void OpenNetwork::check_weights() {
  if (!checked) checkpoint->check(*network);
  checked = true;
}

void OpenNetwork::say_what_is_read(bool verbose) const {
  const std::string file = checkpoint->path().string();
  const auto say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  if (!checkpoint->prefix().empty())
    say(fmt::format("{}: all names begin with '{}'; they are read without it", file, checkpoint->prefix()));
  if (const std::string other = variant_beside(checkpoint->path()); !other.empty())
    say(fmt::format("{} is read; {} is beside it", file, other));
  else if (verbose)
    say(fmt::format("{} is read", file));
  for (const std::string& line : settings->warnings) say(line);
  if (!verbose) return;
  const auto list = [&](const char* name, const auto& value) {
    const auto said = settings->from.find(name);
    say(fmt::format("{:<18} {:<24} {}", name, value,
                    said == settings->from.end() ? fmt::format("{}'s own", network->name()) : said->second));
  };
  if (settings->row.decodes()) {
    list("latent scale", settings->row.latent_scale);
    list("fp32 for fp16", settings->upcast || *settings->row.no_fp16 != '\0');
  }
  for (const std::string& line : settings->ignored) say(line + ": ignored");
}

void start_network(OpenNetwork& open, const NetworkArguments& arguments, const Beside& beside) {
  open.check_weights();
  const std::size_t available = bytes_for_networks(*open.platform);
  try {
    if (!open.plan)
      open.plan = std::make_unique<Plan>(*open.platform, suite(), count_problems(open.network->graph),
                                         Plan::Options{arguments.plan, arguments.strict});
    open.executor = std::make_unique<Executor>(*open.platform, *open.network, *open.checkpoint, *open.plan);
    open.executor->set_programmatic(arguments.programmatic == "on");
    beside.make(open);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(what_would_fit(open, beside, available, error.what()));
  }
}

OpenNetwork open_network(const NetworkArguments& arguments, BuildOptions options,
                         const std::function<void(const Network&)>& check, const Beside& beside,
                         std::shared_ptr<Platform> platform) {
  OpenNetwork open = build_network(settings_of(require_network(arguments.network), arguments), arguments, options,
                                   std::move(platform));
  check(*open.network);
  start_network(open, arguments, beside);
  return open;
}

}  // namespace noisefloor
