// The options of `noisefloor sample`, and what their help says of the networks.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>

#include "bench/commands/network_sizes.h"
#include "bench/commands/sample_arguments.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr std::int64_t kMostFirstImage = std::int64_t{1} << 62;  // so that numbers of images stay below 2^63

// What the networks have by default: "(default: cosine for adm64, else karras)".
std::string defaults(std::string (*of)(const NetworkInfo&)) {
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

std::string level_text(double sigma) {
  return fmt::format("{:.5g}", sigma);
}

std::string networks_that(bool (*so)(const NetworkInfo&)) {
  return listed(networks_where(so), "and");
}

}  // namespace

std::string conditioned_networks() {
  return networks_that([](const NetworkInfo& info) { return !info.conditioning.empty(); });
}

void add_drawing_options(CLI::App& command, SampleArguments& arguments) {
  using sampler_step::SolverRow;
  const auto those = [](bool (*so)(const SolverRow&), const char* conjunction) {
    return listed(sampler_step::solvers_where(so), conjunction);
  };
  const std::vector<std::string> schedules(std::begin(sampler_step::kScheduleNames),
                                           std::end(sampler_step::kScheduleNames));
  SamplingOptions& options = arguments.options;
  add_network_options(command, arguments.network);
  command
      .add_option(
          "--prediction", arguments.prediction,
          "What the weights predict: " +
              listed({std::begin(sampler_step::kPredictionNames), std::end(sampler_step::kPredictionNames)}, "or") +
              defaults([](const NetworkInfo& info) -> std::string {
                return sampler_step::kPredictionNames[static_cast<int>(info.prediction)];
              }))
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(sampler_step::kPredictionNames),
                                                     std::end(sampler_step::kPredictionNames))));
  command.add_option(
      "--sampler", arguments.sampler,
      those([](const SolverRow&) { return true; }, "or") +
          defaults([](const NetworkInfo& info) -> std::string { return sampler_step::row_of(info.solver).name; }));
  command.add_option("--schedule", arguments.schedule,
                     listed(schedules, "or") + defaults([](const NetworkInfo& info) -> std::string {
                       return sampler_step::kScheduleNames[static_cast<int>(info.schedule)];
                     }));
  command.add_option("--spacing", arguments.spacing,
                     "How training timesteps are chosen, by diffusers' names: linspace, leading or trailing" +
                         defaults([](const NetworkInfo& info) -> std::string {
                           return sampler_step::kSpacingNames[static_cast<int>(info.spacing)];
                         }));
  command.add_option("--offset", arguments.offset,
                     "Added to each timestep of spacing leading" +
                         defaults([](const NetworkInfo& info) { return std::to_string(info.offset); }));
  command
      .add_option("--final", arguments.final_level,
                  fmt::format("Where the last step ends: zero (no noise), or first (the level of timestep 0) (default: "
                              "first for {} by {}, else zero)",
                              networks_that([](const NetworkInfo& info) { return info.ends_noisy; }),
                              those([](const SolverRow& row) { return row.ends_as_trained; }, "and")))
      ->check(CLI::IsMember({"zero", "first"}));
  command.add_option("--sigma-min", arguments.sigma_min,
                     "Least noise level: the last of karras, and no timestep of another schedule is below it" +
                         defaults([](const NetworkInfo& info) { return level_text(info.trained_levels().min); }));
  command.add_option("--sigma-max", arguments.sigma_max,
                     "Largest noise level: the first of karras, and no timestep of another schedule is above it" +
                         defaults([](const NetworkInfo& info) { return level_text(info.trained_levels().max); }));
  command.add_option("--rho", arguments.rho,
                     fmt::format("karras: the larger, the more levels near the last (default: {})", options.rho));
  command
      .add_option(
          "--eta", options.eta,
          those([](const SolverRow& row) { return row.takes_eta(); }, "and") + ": 0 is deterministic, 1 as ddpm")
      ->capture_default_str();
  command
      .add_option(
          "--churn", options.churn,
          those([](const SolverRow& row) { return row.churns; }, "and") + ": noise added between the steps (S_churn)")
      ->capture_default_str();
  command
      .add_option("--guidance", arguments.guidance,
                  fmt::format("Scale of classifier-free guidance, 0 for none. The weights must also be trained without "
                              "labels (or text): the shipped ones of {} were, the original ones of {} were not",
                              networks_that([](const NetworkInfo& info) { return info.shipped; }),
                              networks_that([](const NetworkInfo& info) { return *info.unguided_checkpoints != 0; })) +
                      defaults([](const NetworkInfo& info) { return fmt::format("{}", info.guidance); }))
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--clamp", arguments.clamp, "Clamp x0 to [-CLAMP, CLAMP]; 0: do not (default: 0)")
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--seed", arguments.seed, "Seed; an image depends only on it, its own number and its label")
      ->capture_default_str();
  command.add_option("--conditioning", arguments.conditioning,
                     fmt::format("{}: safetensors file of the text or image that each picture follows, made by python3 "
                                 "-m baselines.pytorch.conditioning. It may have the first noise: latents [count, "
                                 "channels, height, width], for videos [count, frames, channels, height, width]",
                                 conditioned_networks()));
  command.add_option("--labels", arguments.labels, "Class numbers, repeated as needed (default: 0, 1, 2, ...)");
  command.add_option(
      "--cache-every", options.cache_every,
      "Compute the whole network in one call of K, and in the others only the last blocks of its decoder, on what the "
      "whole call left. Faster, but pictures differ; it prints how much (default: 1, all whole)");
  command
      .add_option("--cache-blocks", arguments.cache_blocks, "How many last blocks --cache-every computes (default: 1)")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--embed-ahead", arguments.embed_ahead,
                  "off: embed each call's noise level in the call, not those of all calls at once before the loop; "
                  "pictures may differ by roundings (default: on, where the network can and the plan is no file)")
      ->check(CLI::IsMember({"on", "off"}));
}

void add_sample_options(CLI::App& command, SampleArguments& arguments) {
  add_drawing_options(command, arguments);
  add_size_options(command, arguments.sizes, "the network's own", true);
  add_breakdown_options(command, arguments.breakdown);
  command
      .add_option("--first-guidance", arguments.first_guidance,
                  fmt::format("Guidance of a video's first frame; grows in equal steps to --guidance in the last "
                              "(default: 1 for {}, else as --guidance)",
                              networks_that([](const NetworkInfo& info) { return info.first_guidance != 0; })))
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--steps", arguments.steps,
                     "Steps, 1 to 1000" + defaults([](const NetworkInfo& info) { return std::to_string(info.steps); }));
  command.add_option("--count", arguments.count, "Images")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command.add_option("--first-image", arguments.first_image, "Number of the first image")
      ->check(CLI::Range(std::int64_t{0}, kMostFirstImage))
      ->capture_default_str();
  command
      .add_option("--batch", arguments.batch,
                  "Images at a time (default: all, at most 64); too many are refused with the network's range")
      ->check(CLI::Range(1, 65536));
  add_output_file(command, "--out", arguments.out, "PNG file of the grid; for videos an animated one")->required();
  command.add_option("--columns", arguments.columns, "Columns of the grid, at most one for each image")
      ->check(CLI::Range(1, 1000));
  command.add_option("--zoom", arguments.zoom, "Enlarge each pixel to ZOOM x ZOOM")->check(CLI::Range(1, 64));
  add_output_file(command, "--strip", arguments.strip,
                  "PNG file of the first batch's steps, one row for each image; with --every");
  add_output_file(command, "--gif", arguments.gif,
                  "Animated GIF of the grid from noise to pictures, with --every; for videos, of the videos");
  command.add_option("--folder", arguments.folder, "New folder of a video's frames: frame-0000.png and on");
  command.add_option("--fps", arguments.fps, "Frames of a video per second (default: 7)")->check(CLI::Range(1, 50));
  command
      .add_option("--chunk", arguments.chunk,
                  "Decode this many frames of a video at a time, which do not see others (default: all that fit)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--every", arguments.every, "Strip and GIF show the noise, every K-th step and the last");
  add_output_file(command, "--tensor", arguments.tensor,
                  "Safetensors file for images [n, channels, height, width], as forward takes them, labels, the "
                  "noise, and latents if the network draws them");
}

}  // namespace noisefloor
