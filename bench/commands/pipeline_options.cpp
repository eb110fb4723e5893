#include "bench/commands/pipeline_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>

#include "bench/pipeline/network_tensors.h"
#include "bench/pipeline/network_workload.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;
using sampler_step::SolverRow;

// An option whose value is the index of one of the names.
template <class Value, class Target>
CLI::Option* add_choice(CLI::App& command, const std::string& option, Target& target,
                        std::span<const char* const> names, const std::string& about) {
  const std::vector<std::string> known(names.begin(), names.end());
  const auto take = [=, &target](const std::string& name) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end())
      throw InvalidInput(fmt::format("{}: unknown {} '{}'; there are {}{}", option, option.substr(2), name,
                                     fmt::join(known, ", "), did_you_mean(name, known)));
    target = static_cast<Value>(found - known.begin());
  };
  return command.add_option_function<std::string>(option, take, about)
      ->type_name(fmt::format("TEXT:{{{}}}", fmt::join(known, ",")));
}

// One that a network's row has, too.
template <class Value>
void add_row_choice(CLI::App& command, const std::string& option, std::optional<Value>& target,
                    std::span<const char* const> names, Value NetworkInfo::*own, const std::string& about) {
  const auto name_of = [=](const NetworkInfo& info) -> std::string {
    return names[static_cast<std::size_t>(info.*own)];
  };
  add_choice<Value>(command, option, target, names, about + network_defaults(name_of));
}

template <class Target>
CLI::Option* add_switch(CLI::App& command, const std::string& option, Target& on, const std::string& about) {
  static constexpr const char* kOffOn[] = {"off", "on"};
  return add_choice<bool>(command, option, on, kOffOn, about);
}

std::string solvers_that(bool (*so)(const SolverRow&)) {
  return listed(sampler_step::solvers_where(so), "and");
}

std::string level_text(double sigma) {
  return fmt::format("{:.5g}", sigma);
}

std::vector<std::int64_t> labels_of(const std::string& text) {
  const std::vector<std::string> items = split_list(text);
  if (items.size() != 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')))
    throw InvalidInput(fmt::format("--labels '{}': a class number is missing; it should be like 3 or 0,1,2", text));
  std::vector<std::int64_t> labels;
  for (const std::string& item : items) labels.push_back(require_integer("--labels", item));
  return labels;
}

// "multiples of 8 (adm64), of 2 (digits)"; "its own alone" where a network has no other.
std::string sides(bool of_pictures) {
  std::map<std::int64_t, std::vector<std::string>> who;
  for (const NetworkInfo& info : all_networks())
    if (!of_pictures || !info.decodes())
      who[of_pictures ? picture_sides(info).side : info.divisor].emplace_back(info.name);
  std::vector<std::string> parts;
  for (const auto& [divisor, names] : who)
    parts.push_back(fmt::format("{} ({})",
                                divisor == 0   ? "its own alone"
                                : divisor == 1 ? "any"
                                               : fmt::format("a multiple of {}", divisor),
                                fmt::join(names, ", ")));
  return listed(parts, "or");
}

std::string having(bool (*has)(const NetworkInfo&)) {
  const std::vector<std::string> names = networks_where(has);
  return names.empty() ? "no network has them yet" : "for " + listed(names, "and");
}

// Which levels a loop visits, and where it ends.
void add_level_options(CLI::App& command, SampleArguments& arguments) {
  static constexpr const char* kEnds[] = {"zero", "first"};
  add_row_choice(command, "--schedule", arguments.schedule, sampler_step::kScheduleNames, &NetworkInfo::schedule,
                 "Noise levels: karras', or those of a schedule's training timesteps");
  add_row_choice(command, "--spacing", arguments.spacing, sampler_step::kSpacingNames, &NetworkInfo::spacing,
                 "How training timesteps are chosen, by diffusers' names");
  command.add_option("--offset", arguments.offset,
                     "Added to each timestep of spacing leading" +
                         network_defaults([](const NetworkInfo& info) { return std::to_string(info.offset); }));
  add_choice<bool>(command, "--final", arguments.ends_noisy, kEnds,
                   fmt::format("Where the last step ends: zero (no noise), or first (the level of timestep 0) "
                               "(default: first for {} by {}, else zero)",
                               networks_that([](const NetworkInfo& info) { return info.ends_noisy; }),
                               solvers_that([](const SolverRow& row) { return row.ends_as_trained; })));
  command.add_option(
      "--sigma-min", arguments.sigma_min,
      "Least noise level: the last of karras, and no timestep of another schedule is below it" +
          network_defaults([](const NetworkInfo& info) { return level_text(info.trained_levels().min); }));
  command.add_option(
      "--sigma-max", arguments.sigma_max,
      "Largest noise level: the first of karras, and no timestep of another schedule is above it" +
          network_defaults([](const NetworkInfo& info) { return level_text(info.trained_levels().max); }));
  command.add_option(
      "--rho", arguments.rho,
      fmt::format("karras: the larger, the more levels near the last (default: {})", SamplingOptions{}.rho));
}

// What a loop computes at these levels.
void add_solver_options(CLI::App& command, SampleArguments& arguments) {
  add_row_choice(command, "--prediction", arguments.prediction, sampler_step::kPredictionNames,
                 &NetworkInfo::prediction, "What the weights predict");
  add_row_choice(command, "--sampler", arguments.sampler, sampler_step::solver_names(), &NetworkInfo::solver,
                 "How steps are taken");
  add_level_options(command, arguments);
  command
      .add_option("--eta", arguments.eta, solvers_that([](const SolverRow& row) {
                                            return row.takes_eta();
                                          }) + ": 0 is deterministic, 1 as ddpm")
      ->capture_default_str();
  command
      .add_option("--churn", arguments.churn, solvers_that([](const SolverRow& row) {
                                                return row.churns;
                                              }) + ": noise added between the steps (S_churn)")
      ->capture_default_str();
  command
      .add_option("--guidance", arguments.guidance,
                  fmt::format("Scale of classifier-free guidance, 0 for none. The weights must also be trained without "
                              "labels (or text): the shipped ones of {} were, the original ones of {} were not",
                              networks_that([](const NetworkInfo& info) { return info.shipped; }),
                              networks_that([](const NetworkInfo& info) { return *info.unguided_checkpoints != 0; })) +
                      network_defaults([](const NetworkInfo& info) { return fmt::format("{}", info.guidance); }))
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--clamp", arguments.clamp, "Clamp x0 to [-CLAMP, CLAMP]; 0: do not (default: 0)")
      ->check(CLI::Range(0.0, 1e6));
}

}  // namespace

std::string known_networks() {
  return listed(networks_where([](const NetworkInfo&) { return true; }), "or");
}

std::string images_in_words(std::int64_t n, bool videos) {
  return fmt::format("{} {}{}", n, videos ? "video" : "image", n == 1 ? "" : "s");
}

std::string networks_that(bool (*so)(const NetworkInfo&)) {
  return listed(networks_where(so), "and");
}

std::string network_defaults(const std::function<std::string(const NetworkInfo&)>& of) {
  std::map<std::string, std::vector<std::string>> who;
  for (const NetworkInfo& info : all_networks())
    if (!info.decodes()) who[of(info)].emplace_back(info.name);
  const auto usual = std::max_element(who.begin(), who.end(),
                                      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (const auto& [value, names] : who)
    if (value != usual->first) text += fmt::format("{} for {}, ", value, listed(names, "and"));
  return fmt::format(" (default: {}{}{})", text, text.empty() ? "" : "else ", usual->first);
}

void add_network_options(CLI::App& command, ModelRequest& model, std::string& device) {
  command
      .add_option("network", model.network,
                  known_networks() + " (noisefloor list networks has those with problem files)")
      ->required();
  command.add_option("--weights", model.weights,
                     "Checkpoint in safetensors, with the original's tensor names: a file, the index of its shards, "
                     "their folder, or that of a diffusers pipeline (default: the shipped weights)");
  static constexpr const char* kSettings[] = {"folder", "own"};
  add_choice<bool>(
      command, "--settings", model.own_settings, kSettings,
      "folder: as scheduler/, unet/ and vae/ of --weights say in their JSON, where no option says otherwise; "
      "own: the network's own")
      ->default_str("folder");
  command.add_flag("--verbose", model.verbose, "List each setting, its value and where it comes from, on stderr");
  add_device_option(command, device);
  command.add_option_function<std::string>(
      "--dtype", [&](const std::string& name) { model.dtype = require_dtype(network_workload(), name); },
      "bf16, fp16 or fp32 (default: bf16 on a GPU, fp32 on the host)");
  command.add_option("--plan", model.plan, "own, baseline, fastest, naive, or a plan.csv of `noisefloor roofline`")
      ->capture_default_str();
  command.add_flag("--strict", model.strict, "Refuse problems that the plan does not name; do not measure them");
  add_switch(command, "--programmatic", model.programmatic,
             "on: our kernels start while the kernel before them ends (sm_90 and newer)")
      ->default_str("on");
  add_switch(
      command, "--folded-skips", model.folded_skips,
      "on: convolutions add a block's skip and its 1x1, or its upsampled skip, themselves, so none of these nor "
      "a concatenation is written, norms halve an image, and convolutions norm their input where that takes less "
      "time (plan own or fastest, on sm_90)")
      ->default_str("on");
}

void add_size_options(CLI::App& command, Sizes& sizes, const char* otherwise, bool of_pictures,
                      std::string_view without) {
  const char* const image = of_pictures ? "of the picture in pixels" : "of an image, or of the latents in its place";
  const std::map<std::string_view, std::string> described{
      {"height", fmt::format("Height {}: {}", image, sides(of_pictures))},
      {"width", fmt::format("Width {}; the same multiples", image)},
      {"frames", "Frames of a video; " + having([](const NetworkInfo& info) { return info.most_frames > 1; })},
      {"tokens", "Tokens of the text; " + having([](const NetworkInfo& info) { return info.tokens > 0; })}};
  for (const auto& [name, meaning, size, most] : size_fields())
    if (name != without)
      command
          .add_option(fmt::format("--{}", name), sizes.*size,
                      fmt::format("{} (default: {})", described.at(name), otherwise))
          ->check(CLI::Range(std::int64_t{1}, most));
}

void add_drawing_options(CLI::App& command, SampleArguments& arguments, std::string& device) {
  add_network_options(command, arguments.model, device);
  add_solver_options(command, arguments);
  command
      .add_option_function<std::string>(
          "--seed", [&](const std::string& text) { arguments.seed = require_seed(text); },
          "Seed; an image depends only on it, its own number and its label")
      ->default_str("0");
  command.add_option("--conditioning", arguments.conditioning,
                     fmt::format("{}: safetensors file of the text or image that each picture follows, made by python3 "
                                 "-m baselines.pytorch.conditioning. It may have the first noise: latents [count, "
                                 "channels, height, width], for videos [count, frames, channels, height, width]",
                                 networks_that([](const NetworkInfo& info) { return !info.conditioning.empty(); })));
  command.add_option_function<std::string>(
      "--labels", [&](const std::string& text) { arguments.labels = labels_of(text); },
      "Class numbers, repeated as needed (default: 0, 1, 2, ...)");
  command.add_option(
      "--cache-every", arguments.cache_every,
      "Compute the whole network in one call of K, and in the others only the last blocks of its decoder, on what the "
      "whole call left. Faster, but pictures differ; it prints how much (default: 1, all whole)");
  command
      .add_option("--cache-blocks", arguments.cache_blocks, "How many last blocks --cache-every computes (default: 1)")
      ->check(CLI::Range(1, 1000));
  add_switch(command, "--embed-ahead", arguments.embed_ahead,
             "off: embed each call's noise level in the call, not those of all calls at once before the loop; "
             "pictures may differ by roundings (default: on, where the network can and the plan is no file)");
}

void add_inputs(OutputFiles& files, const ModelRequest& model) {
  if (!model.weights.empty())
    for (const auto& file : files_of_checkpoint(model.weights, require_network(model.network).folder))
      files.add_input("--weights", file);
  std::error_code error;
  if (std::filesystem::is_regular_file(model.plan, error)) files.add_input("--plan", model.plan);
}

void add_inputs(OutputFiles& files, const SampleRequest& request) {
  add_inputs(files, request.asked.model);
  if (request.latent()) add_inputs(files, request.asked.model.of_decoder(request.row()));
  files.add_input("--conditioning", request.asked.conditioning);
}

void say_settings(const SampleRequest& request) {
  if (request.asked.model.verbose) fmt::print(stderr, "{}", settings_text(request));
  for (const std::string& note : notes_of(request)) fmt::print(stderr, "{}\n", note);
}

}  // namespace noisefloor
