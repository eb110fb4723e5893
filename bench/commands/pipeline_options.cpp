#include "bench/commands/pipeline_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

// What takes a value that is one of the names, as its index.
template <class Value, class Target>
std::function<void(const std::string&)> one_of(Target& target, std::span<const char* const> names, const char* what) {
  const std::vector<std::string> known(names.begin(), names.end());
  return [=, &target](const std::string& name) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end())
      throw refusal("unknown {} '{}'; there are {}{}", what, name, fmt::join(known, ", "), did_you_mean(name, known));
    target = static_cast<Value>(found - known.begin());
  };
}

template <class Value>
OptionKey names_key(const char* name, std::optional<Value>& target, std::span<const char* const> names,
                    const std::string& about) {
  return {name, fmt::format("{}{}", about, fmt::join(names, ", ")),
          one_of<Value>(target, names, *name == '\0' ? "sampler" : name)};
}

// `least` above `most`: any number.
template <class Number, class Target>
OptionKey number_key(const char* name, Target& target, const std::string& about, Number least = 1, Number most = 0) {
  return {name, about, [=, &target](const std::string& text) {
            Number value = 0;
            if (!CLI::detail::lexical_cast(text, value))
              throw InvalidInput(std::is_integral_v<Number> ? "must be a whole number" : "must be a number");
            if (least < most && !(value >= least && value <= most)) throw refusal("the range is {} to {}", least, most);
            target = value;
          }};
}

OptionKey switch_key(const char* name, bool& target, bool value, const std::string& about) {
  return {name, about, [&target, value](const std::string&) { target = value; }};
}

std::vector<std::int64_t> labels_of(const std::string& text) {
  const std::vector<std::string> items = split_list(text);
  if (items.size() != 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')))
    throw refusal("--labels '{}': a class number is missing; it should be like 3 or 0,1,2", text);
  std::vector<std::int64_t> labels;
  for (const std::string& item : items) labels.push_back(require_integer("--labels", item));
  return labels;
}

// What a loop computes, at which levels, and where it ends.
void add_solver_options(CLI::App& command, SampleArguments& arguments) {
  static constexpr const char* kEnds[] = {"zero", "first"};
  const std::string with_eta =
      listed(sampler_step::solvers_where([](const auto& row) { return row.takes_eta(); }), "and");
  const std::string with_churn = listed(sampler_step::solvers_where([](const auto& row) { return row.churns; }), "and");
  std::vector<OptionKey> keys{
      names_key("", arguments.sampler, sampler_step::solver_names(), ""),
      names_key("prediction", arguments.prediction, sampler_step::kPredictionNames, "what the weights predict: "),
      names_key("schedule", arguments.schedule, sampler_step::kScheduleNames,
                "noise levels, karras' or those of a schedule's training timesteps: "),
      names_key("spacing", arguments.spacing, sampler_step::kSpacingNames,
                "how training timesteps are chosen, by diffusers' names: "),
      number_key<int>("offset", arguments.offset, "added to each timestep of spacing leading", 0,
                      sampler_step::kTrainingSteps),
      {"final", "where the last step ends: zero (no noise), or first (the level of timestep 0)",
       one_of<bool>(arguments.ends_noisy, kEnds, "final")},
      number_key<double>("sigma_min", arguments.sigma_min,
                         "least noise level: the last of karras, and no timestep of another schedule is below it"),
      number_key<double>("sigma_max", arguments.sigma_max,
                         "largest noise level: the first of karras, and no timestep of another schedule is above it"),
      number_key<double>(
          "rho", arguments.rho,
          fmt::format("karras: the larger, the more levels near the last (default: {})", SamplingOptions{}.rho)),
      number_key<double>("eta", arguments.eta, with_eta + ": 0 is deterministic, 1 as ddpm (default: 0)"),
      number_key<double>("churn", arguments.churn,
                         with_churn + ": noise added between the steps, S_churn (default: 0)"),
      number_key<double>("clamp", arguments.clamp, "clamp x0 to [-clamp, clamp]; 0: do not (default: 0)", 0, 1e6)};
  add_keyed_option(command, "--sampler",
                   "How steps are taken, such as ddim,eta=1 or schedule=karras,rho=5 (default: as the checkpoint's "
                   "folder says, else the network's own; --settings list prints which)",
                   std::move(keys));
  const auto guide = [&](const std::string& text) {
    std::vector<double> scales;
    for (const std::string& item : split_list(text)) {
      double scale = 0;
      if (!CLI::detail::lexical_cast(item, scale) || !(scale >= 0 && scale <= 100))
        throw refusal("--guidance {}: the range is 0 to 100", text);
      scales.push_back(scale);
    }
    if (scales.size() > 2) throw refusal("--guidance {}: is one scale, or FIRST,LAST", text);
    if (scales.size() == 2) arguments.first_guidance = scales.front();
    arguments.guidance = scales.back();
  };
  command.add_option_function<std::string>(
      "--guidance", guide,
      "Scale of classifier-free guidance, 0 for none; of videos also FIRST,LAST: it grows in equal steps from the "
      "first frame to the last (default: the network's own). The weights must also be trained without labels (or "
      "text)");
}

}  // namespace

std::string known_networks() {
  return listed(networks_where([](const NetworkInfo&) { return true; }), "or");
}

std::string images_in_words(std::int64_t n, bool videos) {
  return fmt::format("{} {}{}", n, videos ? "video" : "image", n == 1 ? "" : "s");
}

void add_network_options(CLI::App& command, ModelRequest& model, std::string& device) {
  command
      .add_option("network", model.network,
                  known_networks() + " (noisefloor list networks has those with problem files)")
      ->required();
  command.add_option("--weights", model.weights,
                     "Checkpoint in safetensors, with the original's tensor names: a file, the index of its shards, "
                     "their folder, or that of a diffusers pipeline (default: the shipped weights)");
  add_keyed_option(
      command, "--settings",
      "Settings in the JSON of a diffusers folder (scheduler/, unet/, vae/ of --weights), which options override",
      {switch_key("own", model.own_settings, true, "take the network's own"),
       switch_key("list", model.list_settings, true, "list each, its value and where it comes from, on stderr")},
      false);
  add_device_option(command, device);
  command.add_option_function<std::string>(
      "--dtype", [&](const std::string& name) { model.dtype = require_dtype(network_workload(), name); },
      "bf16, fp16 or fp32 (default: bf16 on a GPU, fp32 on the host)");
  command.add_option("--plan", model.plan, "own, baseline, fastest, naive, or a plan.csv of `noisefloor roofline`")
      ->capture_default_str();
  command.add_flag("--strict", model.strict, "Refuse problems that the plan does not name; do not measure them");
}

void add_without_option(CLI::App& command, ModelRequest& model, bool* hoist) {
  std::vector<OptionKey> keys{
      switch_key("pdl", model.programmatic, false,
                 "our kernels do not start while the kernel before them ends (sm_90 and newer)"),
      switch_key("fusions", model.folded_skips, false,
                 "convolutions leave a block's skip and its 1x1, or its upsampled skip, to ops of their own, and their "
                 "input's norm, and norms halve no image (plan own or fastest, on sm_90)")};
  if (hoist != nullptr)
    keys.push_back(switch_key("hoisting", *hoist, false,
                              "each call embeds its own noise level, not all of them once before the loop; pictures "
                              "may differ by roundings (always so beside a plan's file)"));
  add_keyed_option(command, "--without", "What to leave out that makes it faster", std::move(keys), false);
}

void add_size_option(CLI::App& command, Sizes& sizes, const char* otherwise, bool of_pictures,
                     std::string_view without) {
  std::vector<OptionKey> keys;
  for (const auto& [name, meaning, size, most] : size_fields())
    if (name != without)
      keys.push_back(number_key<std::int64_t>(
          name, sizes.*size, of_pictures && size == &Sizes::height ? "height of the picture in pixels" : meaning, 1,
          most));
  add_keyed_option(command, "--size",
                   fmt::format("Sizes, such as height=96,width=64 (default: {}); the refusal of one names those that "
                               "the network takes",
                               otherwise),
                   std::move(keys));
}

void add_drawing_options(CLI::App& command, SampleArguments& arguments, std::string& device) {
  add_network_options(command, arguments.model, device);
  add_solver_options(command, arguments);
  command
      .add_option_function<std::string>(
          "--seed", [&](const std::string& text) { arguments.seed = require_seed(text); },
          "Seed; an image depends only on it, its own number and its label")
      ->default_str("0");
  command.add_option(
      "--conditioning", arguments.conditioning,
      fmt::format("{}: safetensors file of the text or image that each picture follows, made by python3 "
                  "-m baselines.pytorch.conditioning. It may have the first noise: latents [count, "
                  "channels, height, width], for videos [count, frames, channels, height, width]",
                  listed(networks_where([](const NetworkInfo& info) { return !info.conditioning.empty(); }), "and")));
  command.add_option_function<std::string>(
      "--labels", [&](const std::string& text) { arguments.labels = labels_of(text); },
      "Class numbers, repeated as needed (default: 0, 1, 2, ...)");
  add_keyed_option(
      command, "--cache",
      "Compute the whole network in some calls alone, and in the others the last blocks of its decoder, on what the "
      "whole call left. Faster, but pictures differ; it prints how much",
      {number_key<int>("every", arguments.cache_every, "one call of so many is whole (default: 1, all)", 1, 1'000'000),
       number_key<std::int64_t>("blocks", arguments.cache_blocks,
                                "how many last blocks the others compute (default: 1)", 1, 1000)});
  add_without_option(command, arguments.model, &arguments.hoist);
}

void add_inputs(OutputFiles& files, const ModelRequest& model) {
  if (!model.weights.empty())
    for (const auto& file : files_of_checkpoint(model.weights, require_network(model.network).folder))
      files.add_input("--weights", file);
  std::error_code error;
  if (fs::is_regular_file(model.plan, error)) files.add_input("--plan", model.plan);
}

void add_inputs(OutputFiles& files, const SampleRequest& request) {
  add_inputs(files, request.asked.model);
  if (request.latent()) add_inputs(files, request.asked.model.of_decoder(request.row()));
  files.add_input("--conditioning", request.asked.conditioning);
}

void say_settings(const SampleRequest& request) {
  if (request.asked.model.list_settings) fmt::print(stderr, "{}", settings_text(request));
  for (const std::string& note : notes_of(request)) fmt::print(stderr, "{}\n", note);
}

}  // namespace noisefloor
