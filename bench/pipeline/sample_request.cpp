#include "bench/pipeline/sample_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/pipeline/conditioning.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/pipeline/pictures.h"
#include "bench/platform/refusal.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::Schedule;
using sampler_step::Spacing;

GivenOptions given_options(const SampleArguments& asked) {
  GivenOptions given;
  for (const auto& [option, is_given] : std::initializer_list<std::pair<const char*, bool>>{
           {"--sampler prediction=", asked.prediction.has_value()},
           {"--sampler", asked.sampler.has_value()},
           {"--sampler schedule=", asked.schedule.has_value()},
           {"betas", asked.schedule && asked.schedule != Schedule::karras},
           {"--sampler spacing=", asked.spacing.has_value()},
           {"--sampler offset=", asked.offset.has_value()},
           {"--sampler final=", asked.ends_noisy.has_value()},
           {"--sampler sigma_min=", asked.sigma_min.has_value()},
           {"--sampler sigma_max=", asked.sigma_max.has_value()},
           {"--sampler clamp=", asked.clamp.has_value()},
           {"--steps", asked.steps.has_value()},
           {"--guidance", asked.guidance.has_value()},
           {"--size height=", asked.sizes.height != 0},
           {"--size width=", asked.sizes.width != 0},
           {"--size frames=", asked.sizes.frames != 0}})
    if (is_given) given.insert(option);
  return given;
}

// The folder's, below what is asked.
CheckpointSettings settings_below(const SampleArguments& asked, const NetworkInfo& own, const GivenOptions& given) {
  CheckpointSettings settings = asked.model.settings(own, /*sampled=*/true, given);
  NetworkInfo& row = settings.row;
  row.prediction = asked.prediction.value_or(row.prediction);
  std::vector<double>& alphas = row.alphas;
  if (alphas.empty() || alphas.back() != 0) return settings;
  if (row.prediction == sampler_step::Prediction::noise)
    throw InvalidInput(
        "rescale_betas_zero_snr of scheduler/scheduler_config.json goes with what predicts v or x0: without signal, "
        "noise says nothing of a picture; give --sampler prediction=, or a schedule= of timesteps");
  const double least = least_signal(sampler_step::row_of(asked.sampler.value_or(row.solver)));
  for (double& alpha : alphas) alpha = std::max(alpha, least * (1 + 1e-6));  // of some betas the last but one is less
  alphas.back() = least;
  return settings;
}

// karras' levels, as the folder's scheduler has them.
void narrow_karras(const CheckpointSettings& settings, SamplingOptions& options) {
  SamplingOptions visits = options;
  visits.schedule = settings.row.schedule;
  options.spacing = visits.spacing = settings.row.spacing;
  visits.offset = options.spacing == Spacing::leading ? settings.row.offset : 0;
  const std::vector<double> sigmas = visited_sigmas(visits, settings.row);
  if (!options.sigma_max) options.sigma_max = sigmas.front();
  if (!options.sigma_min && options.steps > 1) options.sigma_min = sigmas[static_cast<std::size_t>(options.steps) - 1];
}

// What goes with one kind of schedule alone.
void check_schedule(const SampleArguments& asked, const SamplingOptions& options) {
  const bool karras = options.schedule == Schedule::karras;
  if (asked.rho && !karras)
    throw refusal("--sampler rho= is for schedule=karras; {} has timesteps",
                  sampler_step::kScheduleNames[static_cast<int>(options.schedule)]);
  for (const auto& [option, given] : {std::pair{"--sampler spacing=", asked.spacing.has_value()},
                                      std::pair{"--sampler offset=", asked.offset.has_value()},
                                      std::pair{"--sampler final=", asked.ends_noisy.has_value()}})
    if (given && karras)
      throw refusal("{} is for schedules of training timesteps, as schedule= names them; karras has its own levels",
                    option);
  if (asked.offset && options.spacing != Spacing::leading)
    throw InvalidInput("--sampler offset= is for spacing=leading");
}

SamplingOptions options_of(const SampleArguments& asked, const CheckpointSettings& settings) {
  const NetworkInfo& row = settings.row;
  SamplingOptions options{.solver = asked.sampler.value_or(row.solver),
                          .schedule = asked.schedule.value_or(settings.karras ? Schedule::karras : row.schedule),
                          .steps = asked.steps.value_or(row.steps),
                          .sigma_min = asked.sigma_min,
                          .sigma_max = asked.sigma_max,
                          .eta = asked.eta,
                          .churn = asked.churn,
                          .guidance = asked.guidance.value_or(row.guidance),
                          .first_guidance = asked.first_guidance,
                          .clamp = asked.clamp.value_or(settings.clamp),
                          .seed = asked.seed,
                          .cache_every = asked.cache_every};
  options.rho = asked.rho.value_or(options.rho);
  if (!options.first_guidance && row.first_guidance != 0) options.first_guidance = row.first_guidance;
  const bool karras = options.schedule == Schedule::karras;
  if (karras && !options.sigma_min) options.sigma_min = settings.sigma_min;
  if (karras && !options.sigma_max) options.sigma_max = settings.sigma_max;
  options.spacing = asked.spacing.value_or(karras ? options.spacing : row.spacing);
  check_schedule(asked, options);
  options.offset = asked.offset.value_or(options.spacing == Spacing::leading ? row.offset : 0);
  options.ends_noisy = asked.ends_noisy.value_or(!karras && row.ends_noisy && options.row().ends_as_trained);
  return options;
}

// Options of videos, and those that show pictures on their way.
void check_what_is_shown(const SampleRequest& request) {
  const SampleArguments& asked = request.asked;
  const char* const name = request.row().name;
  for (const auto& [option, given] :
       {std::pair{"--folder", !asked.folder.empty()}, std::pair{"--fps", asked.fps.has_value()},
        std::pair{"--guidance FIRST,LAST", asked.first_guidance.has_value()}})
    if (given && !request.moves())
      throw refusal(
          "{} is for videos, which {} draws, not {}", option,
          listed(networks_where([](const NetworkInfo& other) { return other.most_frames > 1 && !other.decodes(); }),
                 "or"),
          name);
  require_png_name(asked.out, request.moves() ? "an animated PNG of the video, beside which --gif writes a GIF"
                                              : "a PNG of the grid");
  if (asked.chunk && !(request.latent() && request.moves()))
    throw refusal("--chunk is for videos that a decoder makes of latents, which {} does not draw", name);
  if (request.watched() && (request.latent() || request.moves()))
    throw refusal("{} shows pictures on their way; {} draws {}", asked.strip.empty() ? "--gif" : "--strip", name,
                  request.latent() ? "latents, which become pictures in the end" : "videos");
  if (request.watched() && !asked.every)
    throw refusal("{} needs --every K, 1 or more", asked.gif.empty() ? "--strip" : "--gif");
  if (asked.every && !request.watched())
    throw InvalidInput("--every says which steps --strip and --gif show; give one of them");
  if (asked.every && *asked.every < 1) throw refusal("--every {}: the range is 1 and more", *asked.every);
}

void check(const SampleRequest& request) {
  const SampleArguments& asked = request.asked;
  const NetworkInfo& row = request.row();
  check_what_is_shown(request);
  if (asked.cache_blocks && asked.cache_every < 2) throw InvalidInput("--cache blocks= is for every=2 and more");
  if (asked.first_guidance && !request.guided())
    throw InvalidInput("--guidance FIRST,LAST: the last must be above 0, to which the first grows");
  if (row.conditioning.empty() && !asked.conditioning.empty())
    throw refusal("--conditioning is for networks that read text or a picture, as {}, not {}",
                  listed(networks_where([](const NetworkInfo& info) { return !info.conditioning.empty(); }), "and"),
                  row.name);
  if (!row.conditioning.empty() && asked.conditioning.empty())
    throw refusal("{} {}: it needs --conditioning FILE, which is made by {}", row.name,
                  row.tokens > 0 ? "reads text" : "moves a picture", Conditioning::command_for(row));
}

}  // namespace

SampleRequest::SampleRequest(const SampleArguments& given_arguments)
    : SampleRequest(given_arguments, require_network(given_arguments.model.network)) {}

SampleRequest::SampleRequest(const SampleArguments& given_arguments, const NetworkInfo& own)
    : asked(given_arguments),
      given(given_options(asked)),
      settings(settings_below(asked, own, given)),
      options(options_of(asked, settings)),
      sizes(latents_of_pictures(settings.row, asked.sizes)) {
  check(*this);
  if (settings.karras_of_visited && !asked.schedule && options.row().on_sigmas) narrow_karras(settings, options);
  steps = plan_steps(options, settings.row);
}

std::int64_t SampleRequest::frames_shown() const {
  std::int64_t frames = 0;
  for (int step = -1; step < options.steps; ++step) frames += shown(step) ? 1 : 0;
  return frames;
}

BuildOptions SampleRequest::build_options(std::int64_t calls) const {
  return {.batch = batch(),
          .sampling = true,
          .guided = guided(),
          .shallow_blocks = options.cache_every > 1 ? asked.cache_blocks.value_or(1) : 0,
          .hoisted_levels = asked.hoist && pool_named(asked.model.plan) ? calls : 0,
          .sizes = sizes};
}

std::string settings_text(const SampleRequest& request) {
  const CheckpointSettings& settings = request.settings;
  const SamplingOptions& options = request.options;
  const NetworkInfo& row = settings.row;
  std::string text;
  const auto list = [&](const char* name, const std::string& value, const std::string& option) {
    text += settings.line(name, value, request.given.contains(option) ? "option " + option : "");
  };
  const auto level = [](const std::optional<double>& sigma, double trained) {
    return sigma ? fmt::format("{:g}", *sigma) : fmt::format("{:.4g}, as trained", trained);
  };
  list("prediction", sampler_step::kPredictionNames[static_cast<int>(row.prediction)], "--sampler prediction=");
  list("sampler", options.row().name, "--sampler");
  list("schedule", sampler_step::kScheduleNames[static_cast<int>(options.schedule)], "--sampler schedule=");
  for (const char* name : {"beta_start", "beta_end", "rescale_betas_zero_snr"})
    if (const auto said = settings.betas.find(name); said != settings.betas.end()) list(name, said->second, "betas");
  list("sigma_min", level(options.sigma_min, row.trained_levels().min), "--sampler sigma_min=");
  list("sigma_max", level(options.sigma_max, row.trained_levels().max), "--sampler sigma_max=");
  if (options.schedule != Schedule::karras) {
    list("spacing", sampler_step::kSpacingNames[static_cast<int>(options.spacing)], "--sampler spacing=");
    list("offset", std::to_string(options.offset), "--sampler offset=");
    list("final", options.ends_noisy ? "first" : "zero", "--sampler final=");
  }
  list("steps", std::to_string(options.steps), "--steps");
  list("guidance", fmt::format("{:g}", options.guidance), "--guidance");
  list("clamp", fmt::format("{:g}", options.clamp), "--sampler clamp=");
  const PictureSides sides = picture_sides(row);
  list("height", std::to_string(sides.height), "--size height=");
  list("width", std::to_string(sides.width), "--size width=");
  if (request.moves()) list("frames", std::to_string(row.image.frames), "--size frames=");
  return text;
}

std::vector<std::string> notes_of(const SampleRequest& request) {
  std::vector<std::string> notes;
  const NetworkInfo& row = request.row();
  const double guidance = request.options.guidance;
  if (guidance != 0 && guidance != 1 && *row.unguided_checkpoints != '\0')  // at 1 nothing is compared
    notes.push_back(
        fmt::format("--guidance compares with the network's prediction for a label of zeros, which {} were never "
                    "trained on: what it does to pictures is not classifier-free guidance as published",
                    row.unguided_checkpoints));
  double most = 0, least = request.steps.front().sigma;
  for (const StepPlan& step : request.steps) {
    most = std::max(most, step.sigma);
    least = std::min(least, step.second ? step.sigma_next : step.sigma);
  }
  const auto [trained_least, trained_most] = row.trained_levels();
  constexpr double kRounding = 1e-9;
  if (!(least >= trained_least * (1 - kRounding) && most <= trained_most * (1 + kRounding)))
    notes.push_back(fmt::format(
        "noise levels from {:.5g} to {:.5g}, as sigma_min= and sigma_max= of --sampler ask: {} was trained at {:.5g} "
        "to {:.5g}, and what it does beyond them is not known",
        least, most, row.name, trained_least, trained_most));
  return notes;
}

}  // namespace noisefloor::pipeline
