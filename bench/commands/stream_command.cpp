// noisefloor stream: pictures that follow each other, against a deadline.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "bench/commands/add_command.h"
#include "bench/commands/network_sizes.h"
#include "bench/commands/sample_arguments.h"
#include "bench/pipeline/animation.h"
#include "bench/pipeline/conditioning.h"
#include "bench/pipeline/drift.h"
#include "bench/pipeline/finite.h"
#include "bench/pipeline/frame_stream.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr std::int64_t kMostFrames = 1'000'000;
constexpr std::int64_t kMostKeptBytes = std::int64_t{1} << 32;  // of frames, until --out is written
constexpr int kMostFps = 50;                                    // that an animated PNG shows

struct StreamArguments {
  SampleArguments drawing;
  std::int64_t frames = 0;
  int steps = 2;
  double deadline_ms = 0, strength = 0.5, blend = 0.1;
  std::string times;
};

// Of a stream that ran.
struct Frames {
  std::vector<double> ms;
  std::vector<float> last;

  // The least time that such a part of the frames does not exceed.
  double quantile(double part) const {
    std::vector<double> sorted(ms);
    std::sort(sorted.begin(), sorted.end());
    return sorted.at(static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size()))) - 1);
  }
  double seconds() const {
    double sum = 0;
    for (const double one : ms) sum += one;
    return sum / 1e3;
  }
  std::int64_t later_than(double deadline) const {
    return std::count_if(ms.begin(), ms.end(), [&](double one) { return one > deadline; });
  }
};

// The last steps of a schedule of as many as make them `strength` of it, in whole steps; and what they are.
std::pair<SamplingOptions, std::vector<StepPlan>> plan_frames(const StreamArguments& arguments,
                                                              const NetworkInfo& info) {
  SamplingOptions options = arguments.drawing.options;
  if (sampler_step::stochastic(options.row(), 0))
    throw InvalidInput(fmt::format(
        "--sampler {}: draws noise at its steps; frames take one that draws none: {}", arguments.drawing.sampler,
        listed(sampler_step::solvers_where([](const auto& row) { return !sampler_step::stochastic(row, 0); }), "or")));
  if (options.draws_noise())
    throw InvalidInput(
        fmt::format("{}: draws noise on the way, which frames do not", options.churn > 0 ? "--churn" : "--eta"));
  const long all = std::max<long>(arguments.steps, std::lround(arguments.steps / arguments.strength));
  options.steps = static_cast<int>(std::min<long>(all, sampler_step::kTrainingSteps + 1));
  options.first_step = options.steps - arguments.steps;
  try {
    return {options, plan_steps(options, info)};
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--steps {} and --strength {}: are the last of {} steps: {}", arguments.steps,
                                   arguments.strength, all, error.what()));
  }
}

void check(const StreamArguments& arguments, const NetworkInfo& info) {
  if (info.most_frames > 1)
    throw InvalidInput(fmt::format(
        "stream follows a picture with pictures; {} draws videos, which noisefloor sample shows", info.name));
  if (const std::string& out = arguments.drawing.out; std::filesystem::path(out).extension() == ".gif")
    throw InvalidInput(fmt::format("--out {}: is an animated PNG of the frames", out));
}

// Frames behind `first`, each timed from its noise to its picture on the host, behind one that is not.
template <class Seen>
Frames run(FrameStream& stream, std::span<const int> labels, const std::vector<float>& first, std::int64_t count,
           const Seen& seen) {
  stream.begin(labels, first);
  (void)stream.next();
  stream.begin(labels, first);
  Frames frames;
  for (std::int64_t frame = 0; frame < count; ++frame) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<float>& picture = stream.next();
    frames.ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    require_finite(picture, std::ssize(picture), frame);
    seen(picture);
    if (frame + 1 == count) frames.last = picture;
  }
  return frames;
}

void print(const Frames& frames, const std::string& calls, double deadline, const std::string& drift) {
  fmt::print("{:<12} {:>9.3f} {:>9.3f} {:>9.3f} {:>8} {:>9.1f}  {}\n", calls, frames.quantile(0.5),
             frames.quantile(0.99), frames.quantile(1), frames.later_than(deadline),
             static_cast<double>(frames.ms.size()) / frames.seconds(), drift);
}

std::string times_csv(const Frames& frames, double deadline) {
  std::string text = "frame,ms,missed\n";
  for (std::size_t i = 0; i < frames.ms.size(); ++i)
    text += fmt::format("{},{:.6g},{}\n", i, frames.ms[i], frames.ms[i] > deadline ? 1 : 0);
  return text;
}

// A sampler, and the stream that it draws.
struct Loop {
  Loop(Platform& platform, Executor& network, const SamplingOptions& options, Executor* decoder, double blend)
      : sampler(platform, network, options), frames(platform, network, sampler, decoder, blend, options.seed) {}
  static std::size_t bytes(const Network& network, const SamplingOptions& options) {
    return sampler_bytes(network, options) + FrameStream::bytes(network);
  }

  Sampler sampler;
  FrameStream frames;
};

int stream(const StreamArguments& given) {
  StreamArguments arguments = given;
  SampleArguments& drawing = arguments.drawing;
  const std::vector<StepPlan> first_steps = resolve_options(drawing);
  const NetworkInfo& info = drawing.row();
  check(arguments, info);
  const auto [frame_options, steps] = plan_frames(arguments, info);
  SamplingOptions first_options = drawing.options;
  first_options.cache_every = 1;
  const bool guided = first_options.guidance != 0, latent = *info.decoder != '\0';

  OutputFiles files;
  add_inputs(files, drawing.network);
  NetworkArguments decoding;
  if (latent) {
    decoding = decoder_arguments(info, drawing.network);
    add_inputs(files, decoding);
  }
  files.add_input("--conditioning", drawing.conditioning);
  files.add("--out", drawing.out);
  files.add("--times", arguments.times);
  std::optional<Conditioning> conditioning;
  if (!info.conditioning.empty()) {
    conditioning.emplace(drawing.conditioning, info, guided);
    drawing.sizes = conditioning->sizes(drawing.sizes);
    (void)info.resolved(drawing.sizes);
  }
  require_decoder(info, decoding);

  OpenNetwork open =
      build_network(*drawing.settings, drawing.network,
                    {.batch = 1,
                     .sampling = true,
                     .guided = guided,
                     .shallow_blocks = drawing.shallow_blocks(),
                     .levels_ahead = drawing.levels_ahead(std::max(calls_of(first_steps), calls_of(steps))),
                     .sizes = drawing.sizes});
  const Network& network = *open.network;
  drawing.say_if_not_ahead(network);
  OpenNetwork decoder;
  ImageShape picture = network.image;
  if (latent) {
    const NetworkInfo& row = require_network(info.decoder);
    decoding.dtype = decoder_dtype(row, decoding, open.options.dtype);
    decoder = build_network(settings_of(row, decoding), decoding,
                            {.sizes = {.height = network.image.height, .width = network.image.width}}, open.platform);
    picture = {row.enlarges * network.image.height, row.enlarges * network.image.width,
               decoder.network->outputs.front().shape.back()};
  }
  const auto [labels, columns, zoom] = plan_drawing(drawing, network, picture);
  const std::int64_t kept =
      grid_outline(1, picture, 1, zoom).width * grid_outline(1, picture, 1, zoom).height * picture.channels;
  if (!drawing.out.empty() && kept > kMostKeptBytes / arguments.frames)
    throw InvalidInput(
        fmt::format("--out {}: {} frames of {} bytes are more than 2^32 to keep; lower --frames or --zoom", drawing.out,
                    arguments.frames, kept));
  if (conditioning) conditioning->read(network, 1);
  if (drawing.network.verbose) list_settings(drawing);
  open.say_what_is_read(drawing.network.verbose);
  if (latent) decoder.say_what_is_read(drawing.network.verbose);
  if (latent) decoder.check_weights();

  if (latent) start_network(decoder, decoding);
  // One draws the first picture; two make frames, as asked for and with all calls whole.
  std::optional<Sampler> drawer;
  std::optional<Loop> asked, whole;
  const auto make = [&](std::optional<Loop>& loop, OpenNetwork& opened, int cache_every) {
    SamplingOptions options = frame_options;
    options.cache_every = cache_every;
    loop.emplace(*opened.platform, *opened.executor, options, decoder.executor.get(), arguments.blend);
  };
  start_network(open, drawing.network,
                {[&](const Network& other) {
                   return sampler_bytes(other, first_options) +
                          (frame_options.cache_every > 1 ? 2 : 1) * Loop::bytes(other, frame_options);
                 },
                 [&](OpenNetwork& opened) {
                   drawer.emplace(*opened.platform, *opened.executor, first_options);
                   make(asked, opened, frame_options.cache_every);
                   if (frame_options.cache_every > 1) make(whole, opened, 1);
                 }});
  if (first_options.guidance != 0 && first_options.guidance != 1)  // at 1 nothing is compared
    if (const std::string note = guidance_note(info); !note.empty()) fmt::print(stderr, "{}\n", note);
  if (const std::string note = levels_note(info, first_steps); !note.empty()) fmt::print(stderr, "{}\n", note);
  if (conditioning) {
    conditioning->set(*open.platform, *open.executor, 0);
    drawer->begin_from(conditioning->noise(network, 0));
  }
  const std::vector<float> first = drawer->run(labels, 0);
  require_finite(first, network.image.elements(), 0);

  std::vector<Picture> pictures;
  const auto keep = [&](const std::vector<float>& image) {
    if (!drawing.out.empty()) pictures.push_back(make_grid(image, picture, 1, zoom));
  };
  const Frames frames = run(asked->frames, labels, first, arguments.frames, keep);
  fmt::print("{}, {} frames of {} steps by {}, the last of {}, from noise of level {:.3g}{}; deadline {:g} ms\n",
             info.name, arguments.frames, arguments.steps, drawing.sampler, frame_options.steps,
             steps.front().churned_from, latent ? fmt::format(", decoded by {}", info.decoder) : "",
             arguments.deadline_ms);
  fmt::print("{:<12} {:>9} {:>9} {:>9} {:>8} {:>9}  {}\n", "whole calls", "p50 ms", "p99 ms", "worst ms", "missed",
             "frames/s", "the last frame is off by");
  if (frame_options.cache_every == 1) {
    print(frames, "all", arguments.deadline_ms, "-");
  } else {
    const Frames expected = run(whole->frames, labels, first, arguments.frames, [](const std::vector<float>&) {});
    print(frames, fmt::format("1 in {}", frame_options.cache_every), arguments.deadline_ms,
          fmt::format("{:.1f} % (relative L2)", 100 * relative_l2(frames.last, expected.last)));
    print(expected, "all", arguments.deadline_ms, "-");
  }
  if (!drawing.out.empty())
    files.write("--out", encode_animated_png(
                             drawing.out, pictures,
                             std::clamp(static_cast<int>(std::lround(1e3 / arguments.deadline_ms)), 1, kMostFps)));
  if (!arguments.times.empty()) files.write("--times", times_csv(frames, arguments.deadline_ms));
  files.commit();
  return kDone;
}

}  // namespace

void add_stream_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "stream", "Draw pictures that follow each other, and time each against a deadline", stream);
  add_drawing_options(command, arguments.drawing);
  add_size_options(command, arguments.drawing.sizes, "the network's own", true, "frames");
  command.add_option("--frames", arguments.frames, "Frames after the first picture")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, kMostFrames));
  command
      .add_option("--deadline", arguments.deadline_ms,
                  "Deadline of a frame, from its noise to its picture on the host: 16ms or 0.016s")
      ->required()
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1}, {"s", 1e3}},
                                        CLI::AsNumberWithUnit::UNIT_REQUIRED, "DURATION"))
      ->check(CLI::Range(1e-3, 1e9))
      ->check(why_not_finite);
  command.add_option("--steps", arguments.steps, "Steps of a frame")->check(CLI::Range(1, 1000))->capture_default_str();
  command
      .add_option("--strength", arguments.strength,
                  "A frame's steps are the last STRENGTH of a schedule, in whole steps; 1 begins at its noisiest level")
      ->check(CLI::Range(1e-3, 1.0))
      ->check(why_not_finite)
      ->capture_default_str();
  command.add_option("--blend", arguments.blend, "Part of the frame before that noise replaces, 0 to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->check(why_not_finite)
      ->capture_default_str();
  command
      .add_option("--first-steps", arguments.drawing.steps, "Steps of the first picture (default: the network's own)")
      ->check(CLI::Range(1, 1000));
  add_output_file(command, "--out", arguments.drawing.out, "Animated PNG of the frames (default: none is kept)");
  command.add_option("--zoom", arguments.drawing.zoom, "Enlarge each pixel to ZOOM x ZOOM")->check(CLI::Range(1, 64));
  add_output_file(command, "--times", arguments.times, "CSV file of the frames' times");
}

}  // namespace noisefloor
