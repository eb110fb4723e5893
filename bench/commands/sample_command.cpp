// noisefloor sample: pictures from noise.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <map>

#include "bench/commands/breakdown_common.h"
#include "bench/pipeline/animation.h"
#include "bench/pipeline/pictures.h"
#include "bench/pipeline/sampling.h"

namespace noisefloor {
namespace {

using namespace pipeline;

constexpr const char* kSamplers[] = {"ddpm", "ddim", "edm_euler", "edm_heun", "dpmpp_2m"};
constexpr const char* kSchedules[] = {"linear", "scaled_linear", "cosine", "karras"};
constexpr int kFrameDelay = 8, kLastFrameDelay = 200;              // of a GIF, in hundredths of a second
constexpr std::int64_t kMostFrameNumbers = std::int64_t{1} << 30;  // 4 GiB of latents kept for a GIF

struct SampleArguments {
  NetworkArguments network;
  BreakdownArguments breakdown;
  SamplingOptions options;
  std::string sampler = "edm_heun", schedule, out, strip, gif, tensor, labels;
  std::int64_t count = 1, batch = 0, first_image = 0, columns = 0, zoom = 0;
  std::optional<int> every;

  bool watched() const { return !strip.empty() || !gif.empty(); }
};

int index_of(const char* what, const std::string& name, std::span<const char* const> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<int>(i);
  const std::vector<std::string> known(names.begin(), names.end());
  throw InvalidInput(
      fmt::format("unknown {} '{}'; there are {}{}", what, name, fmt::join(known, ", "), did_you_mean(name, known)));
}

std::vector<int> parse_labels(const std::string& text, const Network& network, std::int64_t count) {
  std::vector<int> given;
  for (const std::string& item : split_list(text)) {
    const auto parsed = require_integer("--labels", item);
    if (network.classes == 0)
      throw InvalidInput(fmt::format("--labels: these weights of {} have no classes", network.name));
    if (parsed < 0 || parsed >= network.classes)
      throw InvalidInput(fmt::format("--labels {}: {} has classes 0 to {}", parsed, network.name, network.classes - 1));
    given.push_back(static_cast<int>(parsed));
  }
  std::vector<int> labels;
  for (std::int64_t i = 0; i < count; ++i)
    labels.push_back(!given.empty()        ? given[static_cast<std::size_t>(i) % given.size()]
                     : network.classes > 0 ? static_cast<int>(i % network.classes)
                                           : 0);
  return labels;
}

// What a sample run gathers over its batches.
struct Gathered {
  std::vector<float> images, noise;
  // By step, -1 for the noise itself: the latents of every image (for a strip alone: of the first batch), as far from
  // black and white at every noise level as a picture is.
  std::map<int, std::vector<float>> frames;
};

void require_frames(const SampleArguments& arguments) {
  if (!arguments.strip.empty()) require_writable("--strip", arguments.strip);
  if (!arguments.gif.empty()) require_writable("--gif", arguments.gif);
  const char* option = arguments.gif.empty() ? "--strip" : "--gif";
  if (arguments.watched() && !arguments.every) throw InvalidInput(fmt::format("{} needs --every K, 1 or more", option));
  if (arguments.every && !arguments.watched())
    throw InvalidInput("--every says which steps --strip and --gif show; give one of them");
  if (arguments.every && *arguments.every < 1)
    throw InvalidInput(fmt::format("--every {}: the range is 1 and more", *arguments.every));
}

// The noise, every k-th step and the last.
bool shown(const SampleArguments& arguments, int step) {
  return (step + 1) % *arguments.every == 0 || step + 1 == arguments.options.steps;
}

void require_gif_fits(const SampleArguments& arguments, const Network& network, std::int64_t columns,
                      std::int64_t zoom) {
  const std::int64_t rows = (arguments.count + columns - 1) / columns, pitch = (network.size + 1) * zoom;
  const std::int64_t width = columns * pitch - zoom, height = rows * pitch - zoom;
  if (std::max(width, height) > kMostGifPixels)
    throw InvalidInput(
        fmt::format("--gif {}: a grid of {} x {} pixels, but a GIF's sides have {} at most; lower --zoom or "
                    "change --columns",
                    arguments.gif, width, height, kMostGifPixels));
  std::int64_t frames = 0;
  for (int step = -1; step < arguments.options.steps; ++step) frames += shown(arguments, step) ? 1 : 0;
  const std::int64_t numbers = arguments.count * network.pixels() * network.channels;
  if (numbers > kMostFrameNumbers / frames)
    throw InvalidInput(
        fmt::format("--gif {}: {} steps of {} images are {} numbers to keep, more than 2^30; raise --every or lower "
                    "--count",
                    arguments.gif, frames, arguments.count, frames * numbers));
}

// A row an image, a column a kept step.
Picture make_strip(const Gathered& gathered, std::int64_t images, const Network& network, std::int64_t zoom) {
  const auto numbers = static_cast<std::ptrdiff_t>(network.pixels() * network.channels);
  std::vector<float> strip;
  for (std::int64_t image = 0; image < images; ++image)
    for (const auto& [step, frame] : gathered.frames)
      strip.insert(strip.end(), frame.begin() + image * numbers, frame.begin() + (image + 1) * numbers);
  return make_grid(strip, network.size, network.channels, static_cast<std::int64_t>(gathered.frames.size()), zoom);
}

void write_frames(const std::string& file, const Gathered& gathered, const Network& network, std::int64_t columns,
                  std::int64_t zoom) {
  std::vector<Picture> pictures;
  for (const auto& [step, frame] : gathered.frames)
    pictures.push_back(make_grid(frame, network.size, network.channels, columns, zoom));
  write_gif(file, pictures, kFrameDelay, kLastFrameDelay);
}

void write_tensors(const std::string& file, const Network& network, const Gathered& gathered,
                   const std::vector<int>& labels) {
  const auto n = static_cast<std::int64_t>(labels.size());
  const std::vector<std::int64_t> shape{n, network.size, network.size, network.channels};
  std::vector<std::int64_t> wide(labels.begin(), labels.end());
  const FileTensor tensors[] = {
      {"images", safetensors_name(DType::fp32), shape, std::as_bytes(std::span(gathered.images))},
      {"noise", safetensors_name(DType::fp32), shape, std::as_bytes(std::span(gathered.noise))},
      {"labels", safetensors_name(DType::int64), {n}, std::as_bytes(std::span(wide))},
  };
  write_safetensors(file, tensors, {{"network", network.name}, {"layout", "channels-last"}});
}

int sample(SampleArguments arguments) {
  SamplingOptions& options = arguments.options;
  options.solver = static_cast<sampler_step::Solver>(index_of("sampler", arguments.sampler, kSamplers));
  const NetworkInfo& info = require_network(arguments.network.network);
  if (arguments.schedule.empty()) arguments.schedule = std::string(info.name) == "adm64" ? "cosine" : "karras";
  options.schedule = static_cast<sampler_step::Schedule>(index_of("schedule", arguments.schedule, kSchedules));
  // Says what is wrong with the options before anything is loaded.
  const std::vector<StepPlan> steps = plan_steps(options, sampler_step::Prediction::x0);
  require_writable("--out", arguments.out);
  if (!arguments.tensor.empty()) require_writable("--tensor", arguments.tensor);
  require_frames(arguments);
  check_breakdown(arguments.breakdown, arguments.network);
  const std::int64_t batch =
      arguments.batch > 0 ? std::min(arguments.batch, arguments.count) : std::min<std::int64_t>(arguments.count, 64);

  OpenNetwork open =
      open_network(arguments.network, {.batch = batch, .sampling = true, .guided = options.guidance != 0});
  const Network& network = *open.network;
  if (options.guidance != 0 && network.classes == 0)
    throw InvalidInput(fmt::format("--guidance: these weights of {} have no classes", network.name));
  const std::vector<int> labels = parse_labels(arguments.labels, network, arguments.count);
  const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(arguments.count))));
  const std::int64_t columns = arguments.columns > 0                            ? arguments.columns
                               : network.classes == 10 && arguments.count >= 10 ? 10
                                                                                : side;
  const std::int64_t zoom = arguments.zoom > 0 ? arguments.zoom : std::max<std::int64_t>(1, 32 / network.size);
  if (!arguments.gif.empty()) require_gif_fits(arguments, network, columns, zoom);
  Sampler sampler(*open.platform, *open.executor, options);

  if (arguments.breakdown.wanted()) {
    std::vector<int> first_labels(static_cast<std::size_t>(batch));
    std::copy_n(labels.begin(), batch, first_labels.begin());
    sampler.prepare(first_labels);
    break_down(
        arguments.breakdown, arguments.network, open, [&] { return sampler.enqueue_first_step(); },
        fmt::format("the first of {} steps of {}, {} images", options.steps, arguments.sampler, batch));
  }

  Gathered gathered;
  const bool host = open.platform->description().is_host;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (std::int64_t first = 0; first < arguments.count; first += batch) {
    std::vector<int> batch_labels(static_cast<std::size_t>(batch), 0);  // the last batch may be filled up
    const std::int64_t wanted = std::min(batch, arguments.count - first);
    std::copy_n(labels.begin() + first, wanted, batch_labels.begin());
    const bool kept = !arguments.gif.empty() || (!arguments.strip.empty() && first == 0);
    const auto observer = [&](int step, const void* latents) {
      if (host) {
        fmt::print(stderr, "\rimages {} to {} of {}: step {}/{}, {:.0f} s ", first, first + wanted - 1, arguments.count,
                   step + 1, options.steps, seconds());
        std::fflush(stderr);
      }
      if (!kept || !shown(arguments, step)) return;
      std::vector<float> frame(static_cast<std::size_t>(wanted * network.pixels() * network.channels));
      open.platform->download(frame.data(), latents, frame.size() * sizeof(float));
      const double sigma = step < 0 ? steps.front().churned_from : steps[static_cast<std::size_t>(step)].sigma_next;
      for (float& value : frame) value = static_cast<float>(value / std::sqrt(1 + sigma * sigma));
      std::vector<float>& frames = gathered.frames[step];
      frames.insert(frames.end(), frame.begin(), frame.end());
    };
    const std::vector<float> images = sampler.run(batch_labels, arguments.first_image + first,
                                                  host || kept ? Sampler::Observer(observer) : Sampler::Observer());
    const std::size_t numbers = static_cast<std::size_t>(wanted * network.pixels() * network.channels);
    gathered.images.insert(gathered.images.end(), images.begin(),
                           images.begin() + static_cast<std::ptrdiff_t>(numbers));
    gathered.noise.insert(gathered.noise.end(), sampler.initial_noise().begin(),
                          sampler.initial_noise().begin() + static_cast<std::ptrdiff_t>(numbers));
  }
  const double took = seconds();
  if (host) fmt::print(stderr, "\n");

  write_png(arguments.out, make_grid(gathered.images, network.size, network.channels, columns, zoom));
  if (!arguments.tensor.empty()) write_tensors(arguments.tensor, network, gathered, labels);
  if (!arguments.strip.empty())
    write_png(arguments.strip, make_strip(gathered, std::min(batch, arguments.count), network, zoom));
  if (!arguments.gif.empty()) write_frames(arguments.gif, gathered, network, columns, zoom);
  fmt::print("{} {} by {} in {} steps: {:.2f} s, {:.1f} ms an image; wrote {}\n", arguments.count, network.name,
             arguments.sampler, options.steps, took, 1e3 * took / static_cast<double>(arguments.count), arguments.out);
  return kDone;
}

}  // namespace

void add_sample_command(CLI::App& app, CommandResult result) {
  CLI::App* command = app.add_subcommand("sample", "Draw pictures with a network, from noise");
  auto arguments = std::make_shared<SampleArguments>();
  SamplingOptions& options = arguments->options;
  add_network_options(*command, arguments->network);
  add_breakdown_options(*command, arguments->breakdown);
  command->add_option("--sampler", arguments->sampler, "ddpm, ddim, edm_euler, edm_heun or dpmpp_2m")
      ->capture_default_str();
  command->add_option("--schedule", arguments->schedule,
                      "linear, scaled_linear, cosine or karras (default: cosine for adm64, else karras)");
  command->add_option("--steps", options.steps, "1 to 1000")->capture_default_str();
  command->add_option("--sigma-min", options.sigma_min, "karras: last noise level")->capture_default_str();
  command->add_option("--sigma-max", options.sigma_max, "karras: first noise level")->capture_default_str();
  command->add_option("--rho", options.rho, "karras: how the levels crowd towards the last")->capture_default_str();
  command->add_option("--eta", options.eta, "ddim: 0 deterministic, 1 as ddpm")->capture_default_str();
  command->add_option("--churn", options.churn, "edm_euler, edm_heun: noise added on the way (S_churn)")
      ->capture_default_str();
  command->add_option("--guidance", options.guidance, "Classifier-free guidance; 0: none")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--clamp", options.clamp, "Hold x0 in [-CLAMP, CLAMP]; 0: not")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "An image is a function of seed, its number and its label")
      ->capture_default_str();
  command->add_option("--count", arguments->count, "Images")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command->add_option("--first-image", arguments->first_image, "Number of the first image")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "Images at a time (default: all, at most 64)")
      ->check(CLI::Range(1, 65536));
  command->add_option("--labels", arguments->labels, "Class numbers, repeated as needed (default: 0, 1, 2, ...)");
  command->add_option("--out", arguments->out, "PNG file of the grid")->required();
  command->add_option("--columns", arguments->columns, "Of the grid")->check(CLI::Range(1, 1000));
  command->add_option("--zoom", arguments->zoom, "Side of a pixel in the PNG")->check(CLI::Range(1, 64));
  command->add_option("--strip", arguments->strip,
                      "PNG file of the first batch on its way, a row an image; with --every");
  command->add_option("--gif", arguments->gif,
                      "Animated GIF of the grid on its way, from noise to pictures; with --every");
  command->add_option("--every", arguments->every, "Show the noise, every K-th step and the last in strip and GIF");
  command->add_option("--tensor", arguments->tensor, "safetensors file of images, labels and the noise they came from");
  command->callback([=] { *result = [=] { return sample(*arguments); }; });
}

}  // namespace noisefloor
