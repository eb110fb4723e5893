#include "bench/commands/sample_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "bench/commands/conditioning.h"
#include "bench/commands/network_sizes.h"
#include "bench/pipeline/animation.h"
#include "bench/pipeline/pictures.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr std::int64_t kMostFrameNumbers = std::int64_t{1} << 30;  // 4 GiB of latents kept for a GIF
constexpr std::int64_t kMostFrameBytes = std::int64_t{1} << 32;    // of its pictures, all at once
constexpr std::int64_t kMostFirstImage = std::int64_t{1} << 62;    // so that numbers of images stay below 2^63

int index_of(const char* what, const std::string& name, std::span<const char* const> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<int>(i);
  const std::vector<std::string> known(names.begin(), names.end());
  throw InvalidInput(
      fmt::format("unknown {} '{}'; there are {}{}", what, name, fmt::join(known, ", "), did_you_mean(name, known)));
}

std::uint64_t parse_seed(const std::string& text) {
  try {
    if (const std::int64_t seed = require_integer("--seed", text); seed >= 0) return static_cast<std::uint64_t>(seed);
  } catch (const InvalidInput&) {  // no number, or one that no 64 bits hold
  }
  throw InvalidInput(fmt::format("--seed {}: the range is 0 to {}", text, std::numeric_limits<std::int64_t>::max()));
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

// What the networks have by default: "(default: cosine for adm64, else karras)".
std::string defaults(std::string (*of)(const NetworkInfo&)) {
  std::map<std::string, std::vector<std::string>> who;
  for (const NetworkInfo& info : all_networks()) who[of(info)].emplace_back(info.name);
  const auto usual = std::max_element(who.begin(), who.end(),
                                      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (const auto& [value, names] : who)
    if (value != usual->first) text += fmt::format("{} for {}, ", value, listed(names, "and"));
  return fmt::format(" (default: {}{}{})", text, text.empty() ? "" : "else ", usual->first);
}

std::string conditioned_networks() {
  return listed(networks_where([](const NetworkInfo& info) { return !info.conditioning.empty(); }), "and");
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
  SamplingOptions& options = arguments.options;
  const NetworkInfo& info = require_network(arguments.network.network);
  arguments.sizes = latents_of_pictures(info, arguments.sizes);
  if (arguments.sampler.empty()) arguments.sampler = sampler_step::row_of(info.solver).name;
  if (arguments.schedule.empty()) arguments.schedule = name_of(info.schedule);
  options.steps = arguments.steps.value_or(info.steps);
  options.solver =
      static_cast<sampler_step::Solver>(index_of("sampler", arguments.sampler, sampler_step::solver_names()));
  options.schedule =
      static_cast<sampler_step::Schedule>(index_of("schedule", arguments.schedule, sampler_step::kScheduleNames));
  const auto karras_only = [&](const char* option, const std::optional<double>& given, double& value) {
    if (!given) return;
    if (options.schedule != sampler_step::Schedule::karras)
      throw InvalidInput(
          fmt::format("{} is for --schedule karras; {} has its own noise levels", option, arguments.schedule));
    value = *given;
  };
  options.sigma_max = info.sigma_max;
  karras_only("--sigma-min", arguments.sigma_min, options.sigma_min);
  karras_only("--sigma-max", arguments.sigma_max, options.sigma_max);
  karras_only("--rho", arguments.rho, options.rho);
  const auto not_karras = [&](const char* option, bool given) {
    if (given && options.schedule == sampler_step::Schedule::karras)
      throw InvalidInput(fmt::format("{} is for schedules of training timesteps; karras has its own levels", option));
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
  options.seed = parse_seed(arguments.seed);
  if (arguments.first_guidance || info.first_guidance != 0)
    options.first_guidance = arguments.first_guidance.value_or(info.first_guidance);
  check_what_is_shown(arguments, info);
  if (arguments.first_guidance && options.guidance == 0)
    throw InvalidInput("--first-guidance needs --guidance above 0, to which it grows");
  if (info.conditioning.empty() != arguments.conditioning.empty())
    throw InvalidInput(info.conditioning.empty()
                           ? fmt::format("--conditioning is for networks that read text or a picture, as {}, not {}",
                                         conditioned_networks(), info.name)
                           : fmt::format("{} {}: it needs --conditioning FILE, which is made by {}", info.name,
                                         info.tokens > 0 ? "reads text" : "moves a picture",
                                         Conditioning::command_for(info)));
  return plan_steps(options, info.prediction);
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
  require_png_fits("--out", arguments.out, grid, "lower --zoom or --count");
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

void add_sample_options(CLI::App& command, SampleArguments& arguments) {
  using sampler_step::SolverRow;
  const auto those = [](bool (*so)(const SolverRow&), const char* conjunction) {
    return listed(sampler_step::solvers_where(so), conjunction);
  };
  const auto networks_that = [](bool (*so)(const NetworkInfo&)) { return listed(networks_where(so), "and"); };
  const std::vector<std::string> schedules(std::begin(sampler_step::kScheduleNames),
                                           std::end(sampler_step::kScheduleNames));
  SamplingOptions& options = arguments.options;
  add_network_options(command, arguments.network);
  add_breakdown_options(command, arguments.breakdown);
  add_size_options(command, arguments.sizes, "the network's own", true);
  command.add_option(
      "--sampler", arguments.sampler,
      those([](const SolverRow&) { return true; }, "or") +
          defaults([](const NetworkInfo& info) -> std::string { return sampler_step::row_of(info.solver).name; }));
  command.add_option("--schedule", arguments.schedule, listed(schedules, "or") + defaults([](const NetworkInfo& info) {
                                                         return name_of(info.schedule);
                                                       }));
  command.add_option("--steps", arguments.steps,
                     "1 to 1000" + defaults([](const NetworkInfo& info) { return std::to_string(info.steps); }));
  command.add_option("--spacing", arguments.spacing,
                     "Training timesteps that are visited: linspace, leading or trailing, as diffusers names them" +
                         defaults([](const NetworkInfo& info) -> std::string {
                           return sampler_step::kSpacingNames[static_cast<int>(info.spacing)];
                         }));
  command.add_option("--offset", arguments.offset,
                     "leading: added to each timestep" +
                         defaults([](const NetworkInfo& info) { return std::to_string(info.offset); }));
  command
      .add_option("--final", arguments.final_level,
                  fmt::format("Where the last step ends: zero, without noise, or first, at the level of timestep 0 "
                              "(default: first for {} by {}, else zero)",
                              networks_that([](const NetworkInfo& info) { return info.ends_noisy; }),
                              those([](const SolverRow& row) { return row.ends_as_trained; }, "and")))
      ->check(CLI::IsMember({"zero", "first"}));
  command.add_option("--sigma-min", arguments.sigma_min,
                     fmt::format("karras: last noise level (default: {})", options.sigma_min));
  command.add_option("--sigma-max", arguments.sigma_max,
                     "karras: first noise level" +
                         defaults([](const NetworkInfo& info) { return fmt::format("{}", info.sigma_max); }));
  command.add_option("--rho", arguments.rho,
                     fmt::format("karras: how the levels crowd towards the last (default: {})", options.rho));
  command
      .add_option("--eta", options.eta,
                  those([](const SolverRow& row) { return row.takes_eta(); }, "and") + ": 0 deterministic, 1 as ddpm")
      ->capture_default_str();
  command
      .add_option("--churn", options.churn,
                  those([](const SolverRow& row) { return row.churns; }, "and") + ": noise added on the way (S_churn)")
      ->capture_default_str();
  command
      .add_option(
          "--guidance", arguments.guidance,
          fmt::format(
              "Classifier-free guidance; 0: none. For weights that were also trained without labels (or text), as "
              "the shipped ones of {} were; the originals' of {} were not",
              networks_that([](const NetworkInfo& info) { return info.shipped; }),
              networks_that([](const NetworkInfo& info) { return *info.unguided_checkpoints != 0; })) +
              defaults([](const NetworkInfo& info) { return fmt::format("{}", info.guidance); }))
      ->check(CLI::Range(0.0, 100.0));
  command
      .add_option(
          "--first-guidance", arguments.first_guidance,
          fmt::format("Of a video's first frame; grows in equal steps to --guidance at the last (default: 1 for "
                      "{}, else as --guidance)",
                      networks_that([](const NetworkInfo& info) { return info.first_guidance != 0; })))
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--clamp", options.clamp, "Hold x0 in [-CLAMP, CLAMP]; 0: not")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command.add_option("--seed", arguments.seed, "An image is a function of seed, its number and its label")
      ->capture_default_str();
  command.add_option("--count", arguments.count, "Images")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command.add_option("--first-image", arguments.first_image, "Number of the first image")
      ->check(CLI::Range(std::int64_t{0}, kMostFirstImage))
      ->capture_default_str();
  command
      .add_option("--batch", arguments.batch,
                  "Images at a time (default: all, at most 64); too many for a network are refused with its range")
      ->check(CLI::Range(1, 65536));
  command.add_option("--conditioning", arguments.conditioning,
                     fmt::format("{}: safetensors file of what the network is told of each picture, and of the first "
                                 "noise where it is given (latents [count, channels, height, width], of videos [count, "
                                 "frames, channels, height, width]); python3 -m "
                                 "baselines.pytorch.conditioning makes it",
                                 conditioned_networks()));
  command.add_option("--labels", arguments.labels, "Class numbers, repeated as needed (default: 0, 1, 2, ...)");
  command.add_option("--out", arguments.out, "PNG file of the grid; of videos an animated one")->required();
  command.add_option("--columns", arguments.columns, "Of the grid; no more than there are images")
      ->check(CLI::Range(1, 1000));
  command.add_option("--zoom", arguments.zoom, "Side of a pixel in the PNG")->check(CLI::Range(1, 64));
  command.add_option("--strip", arguments.strip,
                     "PNG file of the first batch on its way, a row an image; with --every");
  command.add_option("--gif", arguments.gif,
                     "Animated GIF of the grid on its way, from noise to pictures, with --every; of videos, of these");
  command.add_option("--folder", arguments.folder, "Folder of a video's frames: frame-0000.png and on");
  command.add_option("--fps", arguments.fps, "Frames of a video shown in a second (default: 7)")
      ->check(CLI::Range(1, 50));
  command
      .add_option("--chunk", arguments.chunk,
                  "Frames of a video that are decoded at a time, and do not see others (default: all, or what fits)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--every", arguments.every, "Show the noise, every K-th step and the last in strip and GIF");
  command.add_option(
      "--tensor", arguments.tensor,
      "safetensors file of images [n, channels, height, width], as forward takes them, labels, the noise, and latents "
      "where the network draws them");
}

}  // namespace noisefloor
