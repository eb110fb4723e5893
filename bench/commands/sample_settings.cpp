// What a checkpoint's folder says of how it is sampled, below the options of `sample` and `stream`.
#include <fmt/format.h>

#include <algorithm>

#include "bench/commands/sample_arguments.h"
#include "bench/pipeline/network_tensors.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

GivenOptions given_options(const SampleArguments& arguments) {
  GivenOptions given;
  const auto add = [&](const char* option, bool is_given) {
    if (is_given) given.insert(option);
  };
  add("--prediction", !arguments.prediction.empty());
  add("--sampler", !arguments.sampler.empty());
  add("--schedule", !arguments.schedule.empty());
  add("betas", !arguments.schedule.empty() && arguments.schedule != "karras");
  add("--spacing", !arguments.spacing.empty());
  add("--offset", arguments.offset.has_value());
  add("--final", !arguments.final_level.empty());
  add("--sigma-min", arguments.sigma_min.has_value());
  add("--sigma-max", arguments.sigma_max.has_value());
  add("--clamp", arguments.clamp.has_value());
  add("--steps", arguments.steps.has_value());
  add("--guidance", arguments.guidance.has_value());
  add("--height", arguments.sizes.height != 0);
  add("--width", arguments.sizes.width != 0);
  add("--frames", arguments.sizes.frames != 0);
  return given;
}

template <std::size_t count>
std::ptrdiff_t place_of(const std::string& name, const char* const (&names)[count]) {
  return std::ranges::find(names, name) - std::begin(names);
}

}  // namespace

void take_settings(SampleArguments& arguments, const NetworkInfo& own) {
  arguments.given = given_options(arguments);
  CheckpointSettings settings = settings_of(own, arguments.network, /*sampled=*/true, arguments.given);
  if (!arguments.prediction.empty())
    settings.row.prediction =
        static_cast<sampler_step::Prediction>(place_of(arguments.prediction, sampler_step::kPredictionNames));
  if (settings.karras && arguments.schedule.empty()) arguments.schedule = "karras";
  if (arguments.schedule == "karras" && !arguments.sigma_min) arguments.sigma_min = settings.sigma_min;
  if (arguments.schedule == "karras" && !arguments.sigma_max) arguments.sigma_max = settings.sigma_max;
  arguments.options.clamp = arguments.clamp.value_or(settings.clamp);
  if (std::vector<double>& alphas = settings.row.alphas; !alphas.empty() && alphas.back() == 0) {
    if (settings.row.prediction == sampler_step::Prediction::noise)
      throw InvalidInput(
          "rescale_betas_zero_snr of scheduler/scheduler_config.json goes with what predicts v or x0: without signal, "
          "noise says nothing of a picture; give --prediction, or a --schedule of timesteps");
    const auto solvers = sampler_step::solvers();
    const auto row = std::ranges::find(solvers, arguments.sampler, &sampler_step::SolverRow::name);
    const double least = least_signal(row == solvers.end() ? sampler_step::row_of(settings.row.solver) : *row);
    for (double& alpha : alphas) alpha = std::max(alpha, least * (1 + 1e-6));  // of some betas the last but one is less
    alphas.back() = least;
  }
  arguments.settings = std::make_shared<const CheckpointSettings>(std::move(settings));
}

void narrow_karras(const SampleArguments& arguments, SamplingOptions& options) {
  if (!arguments.settings->karras_of_visited || arguments.given.contains("--schedule") || !options.row().on_sigmas)
    return;
  SamplingOptions visits = options;
  visits.schedule = arguments.row().schedule;
  options.spacing = visits.spacing = arguments.row().spacing;
  visits.offset = options.spacing == sampler_step::Spacing::leading ? arguments.row().offset : 0;
  const std::vector<double> sigmas = visited_sigmas(visits, arguments.row());
  if (!options.sigma_max) options.sigma_max = sigmas.front();
  if (!options.sigma_min && options.steps > 1) options.sigma_min = sigmas[static_cast<std::size_t>(options.steps) - 1];
}

void list_settings(const SampleArguments& arguments) {
  const CheckpointSettings& settings = *arguments.settings;
  const SamplingOptions& options = arguments.options;
  const NetworkInfo& row = settings.row;
  const auto list = [&](const char* name, const std::string& value, const char* option) {
    const auto said = settings.from.find(name);
    fmt::print(stderr, "{:<18} {:<24} {}\n", name, value,
               arguments.given.contains(option) ? fmt::format("option {}", option)
               : said != settings.from.end()    ? said->second
                                                : fmt::format("{}'s own", row.name));
  };
  const bool karras = options.schedule == sampler_step::Schedule::karras;
  const auto level = [](const std::optional<double>& sigma, double trained) {
    return sigma ? fmt::format("{:g}", *sigma) : fmt::format("{:.4g}, as trained", trained);
  };
  list("prediction", sampler_step::kPredictionNames[static_cast<int>(row.prediction)], "--prediction");
  list("sampler", arguments.sampler, "--sampler");
  list("schedule", arguments.schedule, "--schedule");
  for (const char* name : {"beta_start", "beta_end", "rescale_betas_zero_snr"})
    if (const auto said = settings.betas.find(name); said != settings.betas.end()) list(name, said->second, "betas");
  list("sigma_min", level(options.sigma_min, row.trained_levels().min), "--sigma-min");
  list("sigma_max", level(options.sigma_max, row.trained_levels().max), "--sigma-max");
  if (!karras) {
    list("spacing", sampler_step::kSpacingNames[static_cast<int>(options.spacing)], "--spacing");
    list("offset", std::to_string(options.offset), "--offset");
    list("final", options.ends_noisy ? "first" : "zero", "--final");
  }
  list("steps", std::to_string(options.steps), "--steps");
  list("guidance", fmt::format("{:g}", options.guidance), "--guidance");
  list("clamp", fmt::format("{:g}", options.clamp), "--clamp");
  const PictureSides sides = picture_sides(row);
  list("height", std::to_string(sides.height), "--height");
  list("width", std::to_string(sides.width), "--width");
  if (row.most_frames > 1) list("frames", std::to_string(row.image.frames), "--frames");
}

}  // namespace noisefloor
