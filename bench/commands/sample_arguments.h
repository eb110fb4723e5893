// What `noisefloor sample` was asked for, and whether that can be: everything is said before a network is measured or
// asked.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/commands/breakdown_common.h"
#include "bench/pipeline/sampling.h"

namespace noisefloor {

struct SampleArguments {
  NetworkArguments network;
  BreakdownArguments breakdown;
  networks::Sizes sizes;
  pipeline::SamplingOptions options;
  std::string prediction, sampler, schedule, spacing, final_level, seed = "0", out, strip, gif, folder, tensor,
                                                                   conditioning;
  std::optional<std::string> labels, embed_ahead;
  std::optional<double> sigma_min, sigma_max, rho, clamp, guidance, first_guidance;
  std::int64_t count = 1, batch = 0, first_image = 0, columns = 0, zoom = 0;
  std::optional<int> steps, every, offset, fps;
  std::optional<std::int64_t> chunk, cache_blocks;
  // Of resolve_options: the network as its checkpoint's folder has it, and which of its settings options were given
  // for.
  std::shared_ptr<const pipeline::CheckpointSettings> settings;
  pipeline::GivenOptions given;
  bool moves = false;  // what is drawn is a video: --out, --gif and --folder show it

  const networks::NetworkInfo& row() const { return settings->row; }
  bool watched() const { return !strip.empty() || (!gif.empty() && !moves); }
  std::int64_t images_at_a_time() const;
  // Beside a plan's file only where it was asked for: a file's rows are of networks that embed each call's level.
  std::int64_t levels_ahead(std::int64_t calls) const;
  // Says where the network embeds each call's level in the call, although --embed-ahead on asks for more.
  void say_if_not_ahead(const networks::Network& built) const;
  std::int64_t shallow_blocks() const { return options.cache_every > 1 ? cache_blocks.value_or(1) : 0; }
  int frames_per_second() const { return fps.value_or(7); }  // what Stable Video Diffusion is told by default
  // Of the steps, -1 for the noise: every k-th and the last.
  bool shown(int step) const;
  std::int64_t frames() const;
};

void add_sample_options(CLI::App& command, SampleArguments& arguments);
// Those of them that say what is drawn, from network to class, but for sizes and the number of steps.
void add_drawing_options(CLI::App& command, SampleArguments& arguments);
std::string conditioned_networks();  // those that --conditioning is for: "sd15, sdxl and svd"

// Prediction, sampler, schedule, steps, guidance (where none are given: as the checkpoint's folder says, else the
// network's own), seed and noise levels: fills arguments.options, of which the steps follow. Throws InvalidInput.
std::vector<pipeline::StepPlan> resolve_options(SampleArguments& arguments);
std::vector<pipeline::StepPlan> resolve_options(SampleArguments& arguments, const networks::NetworkInfo& own);

// In sample_settings.cpp. What the checkpoint's folder says, in the places of options that were not given.
void take_settings(SampleArguments& arguments, const networks::NetworkInfo& own);
// Once the steps are known: karras' levels as the folder's scheduler has them.
void narrow_karras(const SampleArguments& arguments, pipeline::SamplingOptions& options);
// For --verbose, once the options are resolved: each setting, its value and where it comes from, on stderr.
void list_settings(const SampleArguments& arguments);

// Pictures as they will be drawn, each of that shape. Throws InvalidInput where the network lacks a label's class,
// guidance is asked of one without classes and text, or a picture would be larger than its format.
struct Drawing {
  std::vector<int> labels;  // one an image
  std::int64_t columns = 1, zoom = 1;
};
Drawing plan_drawing(const SampleArguments& arguments, const networks::Network& network,
                     const networks::ImageShape& picture);

// What to know of guidance with the checkpoints of such a network; empty where nothing is.
std::string guidance_note(const networks::NetworkInfo& network);
// Names the noise levels of steps where some lie outside of those that the network was trained at; else empty.
std::string levels_note(const networks::NetworkInfo& network, std::span<const pipeline::StepPlan> steps);

}  // namespace noisefloor
