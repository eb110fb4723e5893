// What a sampling is asked for, and whether that can be: whatever needs neither device nor weights is said here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline/model.h"
#include "bench/pipeline/sampling_steps.h"

namespace noisefloor::pipeline {

// As options of these names give it. What is not there is as the checkpoint's folder says, or else the network's own.
struct SampleArguments {
  ModelRequest model;
  Sizes sizes = {};  // of pictures
  std::optional<sampler_step::Prediction> prediction = {};
  std::optional<sampler_step::Solver> sampler = {};
  std::optional<sampler_step::Schedule> schedule = {};
  std::optional<sampler_step::Spacing> spacing = {};
  std::optional<bool> ends_noisy = {};
  bool hoist = true;
  std::optional<double> sigma_min = {}, sigma_max = {}, rho = {}, clamp = {}, guidance = {}, first_guidance = {};
  double eta = 0, churn = 0;
  std::uint64_t seed = 0;
  std::optional<int> steps = {}, offset = {}, every = {}, fps = {};
  int cache_every = 1;
  std::optional<std::int64_t> cache_blocks = {}, chunk = {};
  std::vector<std::int64_t> labels = {};  // repeated as needed; none: all classes in turns
  std::int64_t count = 1, batch = 0, first_image = 0, columns = 0, zoom = 0;
  std::string out = {}, strip = {}, gif = {}, folder = {}, tensor = {}, conditioning = {};
  std::int64_t out_frames = 1;  // that follow the picture and are shown in its place (noisefloor stream)
};

struct SampleRequest {
  // Throws InvalidInput. `own`: the network's row, where it is not the one of its name.
  explicit SampleRequest(const SampleArguments& asked);
  SampleRequest(const SampleArguments& asked, const NetworkInfo& own);

  SampleArguments asked;
  GivenOptions given;           // of those that a folder's settings stand below
  CheckpointSettings settings;  // the network's row is in it
  SamplingOptions options;
  std::vector<StepPlan> steps;
  Sizes sizes;  // of latents

  const NetworkInfo& row() const { return settings.row; }
  bool moves() const { return row().most_frames > 1; }  // videos: --out, --gif and --folder show them
  bool latent() const { return *row().decoder != '\0'; }
  bool guided() const { return options.guidance != 0; }
  std::int64_t batch() const { return std::min<std::int64_t>(asked.count, asked.batch > 0 ? asked.batch : 64); }
  std::size_t loops() const { return options.cache_every > 1 ? 2 : 1; }  // as asked; with all calls whole
  bool watched() const { return !asked.strip.empty() || (!asked.gif.empty() && !moves()); }
  // Of the steps, -1 for the noise: every k-th and the last.
  bool shown(int step) const { return (step + 1) % *asked.every == 0 || step + 1 == options.steps; }
  std::int64_t frames_shown() const;
  // Of the network, for loops of so many calls at most. Levels are not embedded ahead beside a plan's
  // file, whose rows are of networks that embed each call's level.
  BuildOptions build_options(std::int64_t calls) const;
};

// For --settings list: each setting, its value and where it comes from, a line each.
std::string settings_text(const SampleRequest& request);
// What to know beforehand, a line each: of guidance by checkpoints that were not trained for it, and of noise levels
// that the network was not trained at.
std::vector<std::string> notes_of(const SampleRequest& request);

}  // namespace noisefloor::pipeline
