#include "bench/pipeline/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "bench/platform/refusal.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

// Beside or above the program, as the problem files are.
std::filesystem::path shipped_weights(const std::string& network) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (auto folder = program.parent_path(); !error; folder = folder.parent_path()) {
    const auto file = folder / "bench" / "pipeline" / "weights" / (network + ".safetensors");
    if (std::filesystem::is_regular_file(file)) return file;
    if (folder == folder.root_path()) break;
  }
  throw refusal("{} needs --weights FILE: only the weights of {} come with noisefloor", network,
                listed(networks_where([](const NetworkInfo& info) { return info.shipped; }), "and"));
}

Checkpoint opened(const std::string& weights, const NetworkInfo& info) {
  Checkpoint checkpoint(weights.empty() ? shipped_weights(info.name) : std::filesystem::path(weights), info.folder);
  checkpoint.drop_prefix(info);
  return checkpoint;
}

void require_plan(const std::string& source) {
  const std::vector<std::string> named(std::begin(kPools), std::end(kPools));
  std::error_code error;
  if (pool_named(source) || std::filesystem::exists(source, error)) return;
  throw refusal("--plan: {} is not a plan: there are {}, and there is no file of that name{}", source,
                fmt::join(named, ", "), did_you_mean(source, named));
}

BuildOptions completed(BuildOptions options, const ModelRequest& request, const Checkpoint& checkpoint,
                       const NetworkInfo& info, const Device& device) {
  require_plan(request.plan);
  options.dtype = request.dtype.value_or(device.platform.description().is_host ? DType::fp32 : DType::bf16);
  options.conditional = checkpoint.has(info.label_weight);
  options.old_names = checkpoint.has(info.old_weight);
  options.fold_skips = request.folded_skips && folds_skips(device.nodes, device.platform, request.plan, options.dtype);
  return options;
}

}  // namespace

CheckpointSettings ModelRequest::settings(const NetworkInfo& info, bool sampled, const GivenOptions& given) const {
  if (weights.empty() || own_settings) return {.row = info};
  const auto file = find_checkpoint(weights, info.folder);  // where there is none, opening it says so
  return file ? checkpoint_settings(info, *file, sampled, given) : CheckpointSettings{.row = info};
}

ModelRequest ModelRequest::of_decoder(const NetworkInfo& info) const {
  ModelRequest decoder = *this;
  decoder.network = info.decoder;
  const auto file = find_checkpoint(weights, info.folder);
  if (const auto folder = file ? pipeline_folder(*file) : std::nullopt) decoder.weights = folder->string();
  return decoder;
}

Model::Model(CheckpointSettings said, ModelRequest asked, BuildOptions build, Device on)
    : request(std::move(asked)),
      device(on),
      settings(std::move(said)),
      checkpoint(opened(request.weights, settings.row)),
      options(completed(std::move(build), request, checkpoint, settings.row, device)),
      network(build_or_say_limit(settings.row, options)) {}

void Model::check_weights() {
  if (!checked_) checkpoint.check(network);
  checked_ = true;
}

const Plan& Model::plan() {
  check_weights();
  if (!plan_) {
    KnownTimes nothing;
    const Plan::Options how{request.plan, request.strict, request.known ? request.known.get() : &nothing};
    if (request.folded_skips) fuse_norms_that_pay(network, device.platform, device.nodes, how);
    plan_ = std::make_unique<const Plan>(device.platform, device.nodes, count_problems(network.graph), how);
  }
  return *plan_;
}

void Model::say_what_is_read() const {
  const std::string file = checkpoint.path().string();
  const auto say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  if (!checkpoint.prefix().empty())
    say(fmt::format("{}: all names begin with '{}'; they are read without it", file, checkpoint.prefix()));
  if (const std::string other = variant_beside(checkpoint.path()); !other.empty())
    say(fmt::format("{} is read; {} is beside it", file, other));
  else if (request.list_settings)
    say(fmt::format("{} is read", file));
  for (const std::string& line : settings.warnings) say(line);
  if (!request.list_settings) return;
  if (settings.row.decodes()) {
    const bool upcast = settings.upcast || *settings.row.no_fp16 != '\0';
    fmt::print(stderr, "{}{}", settings.line("latent scale", fmt::format("{}", settings.row.latent_scale)),
               settings.line("fp32 for fp16", upcast ? "true" : "false"));
  }
  for (const std::string& line : settings.ignored) say(line + ": ignored");
}

RunningModel::RunningModel(Model& model, BytesBeside beside) : model_(&model), beside_(std::move(beside)) {
  model.check_weights();
  available_ = bytes_for_networks(model.device.platform);
  make([&] {
    executor_ = std::make_unique<Executor>(model.device.platform, model.network, model.checkpoint, model.plan());
    executor_->set_programmatic(model.request.programmatic);
  });
}

void RunningModel::make(const std::function<void()>& beside) {
  try {
    beside();
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(what_would_fit(error.what()));
  }
}

// Why a network does not fit, and what would: a smaller batch, most of whose nodes are these, or fewer frames.
std::string RunningModel::what_would_fit(const char* why) const {
  const Network& network = model_->network;
  const auto choice_of = [&](const Node& node) -> const Implementation* {
    return model_->plan_ ? model_->plan_->choice(problem_id(node)).implementation.get() : nullptr;
  };
  std::map<std::pair<std::string, const Op*>, const AnyVariant*> variants;
  bool vendors = false;
  for (const Node& node : network.graph.nodes())
    if (const Implementation* const choice = choice_of(node); choice != nullptr) {
      variants[{node.name, node.op}] = choice->variant();
      vendors = vendors || !choice->own();
    }
  const auto largest = [&](const BuildOptions& options, std::int64_t& size, bool same_nodes) {
    return largest_fitting(size, [&](std::int64_t middle) {
      size = middle;  // of the options
      const Network smaller = network.info->build(options);
      const auto variant_of = [&](std::size_t index) -> const AnyVariant* {
        const Node& node = smaller.graph.nodes().at(index);
        const auto found = variants.find({node.name, node.op});
        return same_nodes && found != variants.end() ? found->second : nullptr;
      };
      const auto bytes = executor_bytes(smaller, model_->device.platform.description(), variant_of);
      return bytes && *bytes + (beside_ ? beside_(smaller) : 0) <= available_;
    });
  };
  std::string text = fmt::format("{}: a batch of {} does not fit: {}; ", network.name(), network.batch, why);
  BuildOptions fewer = model_->options, one = fewer;
  one.batch = 1;
  one.sizes.frames = network.image.frames;
  if (const std::int64_t batch = largest(fewer, fewer.batch, true); batch > 0)
    text += fmt::format("a batch of {} would", batch);
  else if (const std::int64_t frames = largest(one, one.sizes.frames, false); frames > 0)
    text += fmt::format("no batch of {} frames would; of one video {} frames would", network.image.frames, frames);
  else
    text += "no batch would";
  return text + (vendors ? ", as far as vendors' libraries do not work in more" : "");
}

}  // namespace noisefloor::pipeline
