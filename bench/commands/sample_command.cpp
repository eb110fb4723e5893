// noisefloor sample: pictures from noise.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>

#include "bench/commands/pipeline_common.h"
#include "bench/pipeline/pictures.h"
#include "bench/pipeline/sampling.h"

namespace noisefloor {
namespace {

using namespace pipeline;

constexpr const char* kSamplers[] = {"ddpm", "ddim", "edm_euler", "edm_heun", "dpmpp_2m"};
constexpr const char* kSchedules[] = {"linear", "scaled_linear", "cosine", "karras"};

struct SampleArguments {
  NetworkArguments network;
  SamplingOptions options;
  std::string sampler = "edm_heun", schedule, out, strip, tensor, labels;
  std::int64_t count = 1, batch = 0, first_image = 0, columns = 0, zoom = 0;
  int every = 0;
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
  std::vector<std::vector<float>> frames;  // of the first batch: the latents after every k-th step, scaled to be seen
};

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
  (void)plan_steps(options,
                   sampler_step::Prediction::x0);  // says what is wrong with the options before anything is loaded
  require_writable("--out", arguments.out);
  if (!arguments.tensor.empty()) require_writable("--tensor", arguments.tensor);
  if (!arguments.strip.empty()) {
    require_writable("--strip", arguments.strip);
    if (arguments.every < 1) throw InvalidInput("--strip needs --every K, 1 or more");
  }
  const std::int64_t batch =
      arguments.batch > 0 ? std::min(arguments.batch, arguments.count) : std::min<std::int64_t>(arguments.count, 64);

  OpenNetwork open =
      open_network(arguments.network, {.batch = batch, .sampling = true, .guided = options.guidance != 0});
  const Network& network = *open.network;
  if (options.guidance != 0 && network.classes == 0)
    throw InvalidInput(fmt::format("--guidance: these weights of {} have no classes", network.name));
  const std::vector<int> labels = parse_labels(arguments.labels, network, arguments.count);
  Sampler sampler(*open.platform, *open.executor, options);

  Gathered gathered;
  const bool host = open.platform->description().is_host;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (std::int64_t first = 0; first < arguments.count; first += batch) {
    std::vector<int> batch_labels(static_cast<std::size_t>(batch), 0);  // the last batch may be filled up
    const std::int64_t wanted = std::min(batch, arguments.count - first);
    std::copy_n(labels.begin() + first, wanted, batch_labels.begin());
    const bool watched = host || (!arguments.strip.empty() && first == 0);
    const auto observer = [&](int step, const void* latents) {
      if (host) {
        fmt::print(stderr, "\rimages {} to {} of {}: step {}/{}, {:.0f} s ", first, first + wanted - 1, arguments.count,
                   step + 1, options.steps, seconds());
        std::fflush(stderr);
      }
      if (arguments.strip.empty() || first != 0 || ((step + 1) % arguments.every != 0 && step + 1 != options.steps))
        return;
      std::vector<float> frame(static_cast<std::size_t>(wanted * network.pixels() * network.channels));
      open.platform->download(frame.data(), latents, frame.size() * sizeof(float));
      double sum = 0;  // latents of any level are shown at the contrast of a picture
      for (const float value : frame) sum += static_cast<double>(value) * value;
      const double rms = std::sqrt(sum / static_cast<double>(frame.size()));
      for (float& value : frame) value = static_cast<float>(value / std::max(1.0, rms * 1.5));
      gathered.frames.push_back(std::move(frame));
    };
    const std::vector<float> images = sampler.run(batch_labels, arguments.first_image + first,
                                                  watched ? Sampler::Observer(observer) : Sampler::Observer());
    const std::size_t numbers = static_cast<std::size_t>(wanted * network.pixels() * network.channels);
    gathered.images.insert(gathered.images.end(), images.begin(),
                           images.begin() + static_cast<std::ptrdiff_t>(numbers));
    gathered.noise.insert(gathered.noise.end(), sampler.initial_noise().begin(),
                          sampler.initial_noise().begin() + static_cast<std::ptrdiff_t>(numbers));
  }
  const double took = seconds();
  if (host) fmt::print(stderr, "\n");

  const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(arguments.count))));
  const std::int64_t columns = arguments.columns > 0                            ? arguments.columns
                               : network.classes == 10 && arguments.count >= 10 ? 10
                                                                                : side;
  const std::int64_t zoom = arguments.zoom > 0 ? arguments.zoom : std::max<std::int64_t>(1, 32 / network.size);
  write_png(arguments.out, make_grid(gathered.images, network.size, network.channels, columns, zoom));
  if (!arguments.tensor.empty()) write_tensors(arguments.tensor, network, gathered, labels);
  if (!arguments.strip.empty()) {
    // A row an image, a column a kept step.
    const std::size_t image_numbers = static_cast<std::size_t>(network.pixels() * network.channels);
    std::vector<float> strip;
    for (std::size_t image = 0; image < gathered.frames.front().size() / image_numbers; ++image)
      for (const auto& frame : gathered.frames)
        strip.insert(strip.end(), frame.begin() + static_cast<std::ptrdiff_t>(image * image_numbers),
                     frame.begin() + static_cast<std::ptrdiff_t>((image + 1) * image_numbers));
    write_png(arguments.strip, make_grid(strip, network.size, network.channels,
                                         static_cast<std::int64_t>(gathered.frames.size()), zoom));
  }
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
  command->add_option("--every", arguments->every, "Show every K-th step in the strip");
  command->add_option("--tensor", arguments->tensor, "safetensors file of images, labels and the noise they came from");
  command->callback([=] { *result = [=] { return sample(*arguments); }; });
}

}  // namespace noisefloor
