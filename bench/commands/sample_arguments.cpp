#include "bench/commands/sample_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "bench/pipeline/animation.h"
#include "bench/pipeline/conditioning.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/pipeline/pictures.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr std::int64_t kMostFrameNumbers = std::int64_t{1} << 30;  // 4 GiB of latents kept for a GIF
constexpr std::int64_t kMostFrameBytes = std::int64_t{1} << 32;    // of its pictures, all at once

int index_of(const char* what, const std::string& name, std::span<const char* const> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<int>(i);
  const std::vector<std::string> known(names.begin(), names.end());
  throw InvalidInput(
      fmt::format("unknown {} '{}'; there are {}{}", what, name, fmt::join(known, ", "), did_you_mean(name, known)));
}

std::vector<int> labels_of(const SampleArguments& arguments, const Network& network) {
  std::vector<int> given;
  if (arguments.labels) {
    const std::string& text = *arguments.labels;
    const std::vector<std::string> items = split_list(text);
    if (items.size() != 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')))
      throw InvalidInput(fmt::format("--labels '{}': a class number is missing; it should be like 3 or 0,1,2", text));
    if (network.classes == 0)
      throw InvalidInput(fmt::format("--labels: these weights of {} have no classes", network.name()));
    for (const std::string& item : items) {
      const auto parsed = require_integer("--labels", item);
      if (parsed < 0 || parsed >= network.classes)
        throw InvalidInput(
            fmt::format("--labels {}: {} has classes 0 to {}", parsed, network.name(), network.classes - 1));
      given.push_back(static_cast<int>(parsed));
    }
  }
  std::vector<int> labels;
  for (std::int64_t i = 0; i < arguments.count; ++i)
    labels.push_back(!given.empty()        ? given[static_cast<std::size_t>(i) % given.size()]
                     : network.classes > 0 ? static_cast<int>(i % network.classes)
                                           : 0);
  return labels;
}

void require_png_fits(const char* option, const std::string& file, const Picture& picture, const char* advice) {
  const std::int64_t bytes = png_bytes(picture.width, picture.height, picture.channels);
  if (bytes > kMostPngBytes)
    throw InvalidInput(fmt::format("{} {}: {} x {} pixels are {} bytes, but a PNG of ours has {} at most; {}", option,
                                   file, picture.width, picture.height, bytes, kMostPngBytes, advice));
}

// Pictures one behind the other, which are kept until all are there.
void require_animation_fits(const char* option, const std::string& file, std::int64_t frames, const Picture& grid,
                            const char* advice) {
  if (const std::int64_t bytes = grid.width * grid.height * grid.channels; bytes > kMostFrameBytes / frames)
    throw InvalidInput(fmt::format("{} {}: {} frames of {} x {} pixels are {} bytes to keep, more than 2^32; {}",
                                   option, file, frames, grid.width, grid.height, frames * bytes, advice));
}

void require_gif_fits(const SampleArguments& arguments, const Network& network, const Picture& grid) {
  if (std::max(grid.width, grid.height) > kMostGifPixels)
    throw InvalidInput(
        fmt::format("--gif {}: a grid of {} x {} pixels, but a GIF's sides have {} at most; lower --zoom or "
                    "change --columns",
                    arguments.gif, grid.width, grid.height, kMostGifPixels));
  if (arguments.moves) return;
  const std::int64_t frames = arguments.frames();
  require_animation_fits("--gif", arguments.gif, frames, grid, "raise --every or lower --zoom or --count");
  const std::int64_t numbers = arguments.count * network.image.elements();
  if (numbers > kMostFrameNumbers / frames)
    throw InvalidInput(
        fmt::format("--gif {}: {} steps of {} images are {} numbers to keep, more than 2^30; raise --every or lower "
                    "--count",
                    arguments.gif, frames, arguments.count, frames * numbers));
}

std::string name_of(sampler_step::Schedule schedule) {
  return sampler_step::kScheduleNames[static_cast<int>(schedule)];
}

// Options of videos, and those that show pictures on their way.
void check_what_is_shown(SampleArguments& arguments, const NetworkInfo& info) {
  arguments.moves = info.most_frames > 1;
  const auto of_videos = [&](const char* option, bool given) {
    if (!given || arguments.moves) return;
    const auto moving = [](const NetworkInfo& other) { return other.most_frames > 1 && !other.decodes(); };
    throw InvalidInput(fmt::format("{} is for videos, which {} draws, not {}", option,
                                   listed(networks_where(moving), "or"), info.name));
  };
  of_videos("--folder", !arguments.folder.empty());
  of_videos("--fps", arguments.fps.has_value());
  of_videos("--first-guidance", arguments.first_guidance.has_value());
  if (arguments.moves && std::filesystem::path(arguments.out).extension() == ".gif")
    throw InvalidInput(
        fmt::format("--out {}: is an animated PNG of the video; --gif FILE is for a GIF", arguments.out));
  const bool latent = *info.decoder != '\0';
  if (arguments.chunk && !(latent && arguments.moves))
    throw InvalidInput(
        fmt::format("--chunk is for videos that a decoder makes of latents, which {} does not draw", info.name));
  const char* option = arguments.strip.empty() ? "--gif" : "--strip";
  if (arguments.watched() && (latent || arguments.moves))
    throw InvalidInput(fmt::format("{} shows pictures on their way; {} draws {}", option, info.name,
                                   latent ? "latents, which become pictures in the end" : "videos"));
  option = arguments.gif.empty() ? "--strip" : "--gif";
  if (arguments.watched() && !arguments.every) throw InvalidInput(fmt::format("{} needs --every K, 1 or more", option));
  if (arguments.every && !arguments.watched())
    throw InvalidInput("--every says which steps --strip and --gif show; give one of them");
  if (arguments.every && *arguments.every < 1)
    throw InvalidInput(fmt::format("--every {}: the range is 1 and more", *arguments.every));
}

}  // namespace

std::int64_t SampleArguments::images_at_a_time() const {
  constexpr std::int64_t kDefault = 64;
  return std::min(count, batch > 0 ? batch : kDefault);
}

bool SampleArguments::shown(int step) const {
  return (step + 1) % *every == 0 || step + 1 == options.steps;
}

std::int64_t SampleArguments::frames() const {
  std::int64_t frames = 0;
  for (int step = -1; step < options.steps; ++step) frames += shown(step) ? 1 : 0;
  return frames;
}

std::vector<StepPlan> resolve_options(SampleArguments& arguments) {
  return resolve_options(arguments, require_network(arguments.network.network));
}

std::vector<StepPlan> resolve_options(SampleArguments& arguments, const NetworkInfo& own) {
  take_settings(arguments, own);
  SamplingOptions& options = arguments.options;
  const NetworkInfo& info = arguments.row();
  arguments.sizes = latents_of_pictures(info, arguments.sizes);
  if (arguments.sampler.empty()) arguments.sampler = sampler_step::row_of(info.solver).name;
  if (arguments.schedule.empty()) arguments.schedule = name_of(info.schedule);
  options.steps = arguments.steps.value_or(info.steps);
  options.solver =
      static_cast<sampler_step::Solver>(index_of("sampler", arguments.sampler, sampler_step::solver_names()));
  options.schedule =
      static_cast<sampler_step::Schedule>(index_of("schedule", arguments.schedule, sampler_step::kScheduleNames));
  options.sigma_min = arguments.sigma_min;
  options.sigma_max = arguments.sigma_max;
  if (arguments.rho && options.schedule != sampler_step::Schedule::karras)
    throw InvalidInput(fmt::format("--rho is for --schedule karras; {} has timesteps", arguments.schedule));
  options.rho = arguments.rho.value_or(options.rho);
  const auto not_karras = [&](const char* option, bool given) {
    if (given && options.schedule == sampler_step::Schedule::karras)
      throw InvalidInput(fmt::format(
          "{} is for schedules of training timesteps, as --schedule names them; karras has its own levels", option));
  };
  not_karras("--spacing", !arguments.spacing.empty());
  not_karras("--offset", arguments.offset.has_value());
  not_karras("--final", !arguments.final_level.empty());
  const bool trained_steps = options.schedule != sampler_step::Schedule::karras;
  if (!arguments.spacing.empty())
    options.spacing =
        static_cast<sampler_step::Spacing>(index_of("spacing", arguments.spacing, sampler_step::kSpacingNames));
  else if (trained_steps)
    options.spacing = info.spacing;
  const bool leading = options.spacing == sampler_step::Spacing::leading;
  if (arguments.offset && !leading) throw InvalidInput("--offset is for --spacing leading");
  options.offset = arguments.offset.value_or(leading ? info.offset : 0);
  options.ends_noisy = arguments.final_level.empty() ? trained_steps && info.ends_noisy && options.row().ends_as_trained
                                                     : arguments.final_level == "first";
  options.guidance = arguments.guidance.value_or(info.guidance);
  options.seed = require_seed(arguments.seed);
  if (arguments.first_guidance || info.first_guidance != 0)
    options.first_guidance = arguments.first_guidance.value_or(info.first_guidance);
  check_what_is_shown(arguments, info);
  if (arguments.cache_blocks && options.cache_every < 2)
    throw InvalidInput("--cache-blocks is for --cache-every 2 and more");
  if (arguments.first_guidance && options.guidance == 0)
    throw InvalidInput("--first-guidance needs --guidance above 0, to which it grows");
  if (info.conditioning.empty() != arguments.conditioning.empty())
    throw InvalidInput(info.conditioning.empty()
                           ? fmt::format("--conditioning is for networks that read text or a picture, as {}, not {}",
                                         conditioned_networks(), info.name)
                           : fmt::format("{} {}: it needs --conditioning FILE, which is made by {}", info.name,
                                         info.tokens > 0 ? "reads text" : "moves a picture",
                                         Conditioning::command_for(info)));
  narrow_karras(arguments, options);
  return plan_steps(options, info);
}

Drawing plan_drawing(const SampleArguments& arguments, const Network& network, const ImageShape& picture) {
  if (arguments.options.guidance != 0 && network.classes == 0 && network.info->conditioning.empty())
    throw InvalidInput(fmt::format("--guidance: these weights of {} have no classes", network.name()));
  Drawing drawing;
  drawing.labels = labels_of(arguments, network);
  const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(arguments.count))));
  const std::int64_t columns = arguments.columns > 0                            ? arguments.columns
                               : network.classes == 10 && arguments.count >= 10 ? 10
                                                                                : side;
  drawing.columns = std::min(columns, arguments.count);
  drawing.zoom =
      arguments.zoom > 0 ? arguments.zoom : std::max<std::int64_t>(1, 32 / std::max(picture.height, picture.width));

  ImageShape one = picture;  // of a video, which is shown frame by frame
  one.frames = 1;
  const Picture grid = grid_outline(arguments.count, one, drawing.columns, drawing.zoom);
  if (!arguments.out.empty()) require_png_fits("--out", arguments.out, grid, "lower --zoom or --count");
  if (arguments.moves)
    require_animation_fits("--out", arguments.out, picture.frames, grid, "lower --zoom, --count or --frames");
  if (!arguments.strip.empty()) {
    const std::int64_t rows = arguments.images_at_a_time(), frames = arguments.frames();
    require_png_fits("--strip", arguments.strip, grid_outline(rows * frames, network.image, frames, drawing.zoom),
                     "raise --every or lower --zoom or --batch");
  }
  if (!arguments.gif.empty()) require_gif_fits(arguments, network, grid);
  return drawing;
}

std::string guidance_note(const NetworkInfo& network) {
  if (*network.unguided_checkpoints == '\0') return {};
  return fmt::format(
      "--guidance compares with the network's prediction for a label of zeros, which {} were never trained "
      "on: what it does to pictures is not classifier-free guidance as published",
      network.unguided_checkpoints);
}

std::string levels_note(const NetworkInfo& network, std::span<const StepPlan> steps) {
  double most = 0, least = steps.front().sigma;
  for (const StepPlan& step : steps) {
    most = std::max(most, step.sigma);
    least = std::min(least, step.second ? step.sigma_next : step.sigma);
  }
  const auto [trained_least, trained_most] = network.trained_levels();
  constexpr double kRounding = 1e-9;
  if (least >= trained_least * (1 - kRounding) && most <= trained_most * (1 + kRounding)) return {};
  return fmt::format(
      "noise levels from {:.5g} to {:.5g}, as --sigma-min and --sigma-max ask: {} was trained at {:.5g} to {:.5g}, and "
      "what it does beyond them is not known",
      least, most, network.name, trained_least, trained_most);
}

std::int64_t SampleArguments::levels_ahead(std::int64_t calls) const {
  const bool wanted = embed_ahead ? *embed_ahead == "on" : pipeline::pool_named(network.plan).has_value();
  return wanted ? calls : 0;
}

void SampleArguments::say_if_not_ahead(const networks::Network& built) const {
  if (embed_ahead != "on" || built.levels_ahead > 0) return;
  fmt::print(
      stderr,
      "--embed-ahead on does nothing here: {} cannot, or the rows of so many calls would take more than {} MiB\n",
      built.name(), networks::kMostBytesAhead >> 20);
}

}  // namespace noisefloor
