// noisefloor stream: pictures that follow each other, against a deadline.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/commands/commands.h"
#include "bench/commands/pipeline_options.h"
#include "bench/pipeline/frame_stream.h"
#include "bench/pipeline/pictures.h"
#include "bench/sweep/suite.h"
#include "kernels/core/fields.h"

namespace noisefloor {
namespace {

using namespace pipeline;

constexpr std::int64_t kMostFrames = 1'000'000;
constexpr int kMostFps = 50;  // that an animated PNG shows

struct StreamCommand {
  SampleArguments asked;
  std::string device, times;
  std::int64_t frames = 0;
  int steps = 2;
  double deadline_ms = 0, strength = 0.5, blend = 0.1;
};

void print(const FrameTimes& frames, const std::string& calls, double deadline, const std::string& drift) {
  std::vector<double> sorted(frames.ms);
  std::ranges::sort(sorted);
  const auto count = static_cast<double>(sorted.size());
  const auto quantile = [&](double part) {  // the least that such a part of the frames does not exceed
    return sorted.at(static_cast<std::size_t>(std::ceil(part * count)) - 1);
  };
  const std::vector<double>& change = frames.change;
  const double changes = std::accumulate(change.begin(), change.end(), 0.0) / static_cast<double>(change.size());
  fmt::print("{:<12} {:>9.3f} {:>9.3f} {:>9.3f} {:>8} {:>9.1f} {:>11}  {}\n", calls, quantile(0.5), quantile(0.99),
             quantile(1), sorted.end() - std::ranges::upper_bound(sorted, deadline),
             1e3 * count / std::accumulate(sorted.begin(), sorted.end(), 0.0),
             change.empty() ? "-" : fmt::format("{:.4f}", changes), drift);
}

std::string times_csv(const FrameTimes& frames, double deadline) {
  std::string text = "frame,ms,missed,change\n";
  for (std::size_t i = 0; i < frames.ms.size(); ++i)
    text += fmt::format("{},{:.6g},{},{}\n", i, frames.ms[i], frames.ms[i] > deadline ? 1 : 0,
                        i > 0 ? fmt::format("{:.6g}", frames.change[i - 1]) : "");
  return text;
}

int stream(const StreamCommand& command) {
  SampleArguments asked = command.asked;
  asked.out_frames = command.frames;
  const std::string& out = asked.out;
  require_png_name(out, "an animated PNG of the frames");
  const StreamRequest request(asked, command.steps, command.strength, command.blend);
  OutputFiles files;
  add_inputs(files, request.first);
  files.add("--out", out);
  files.add("--times", command.times);
  const std::unique_ptr<Platform> platform = open_platform(command.device);
  say_settings(request.first);
  StreamPipeline pipeline(request, {*platform, suite()});

  const Drawing& drawing = pipeline.models().drawing;
  std::vector<Picture> pictures;
  const FrameTimes frames = pipeline.draw(command.frames, false, [&](const std::vector<float>& image) {
    if (!out.empty()) pictures.push_back(make_grid(image, drawing.picture, 1, drawing.zoom));
  });
  fmt::print("{}, {} frames of {} steps by {}, the last of {}, from noise of level {:.3g}{}; deadline {:g} ms\n",
             request.first.row().name, command.frames, command.steps, request.frame.row().name, request.frame.steps,
             request.steps.front().churned_from,
             request.first.latent() ? fmt::format(", decoded by {}", request.first.row().decoder) : "",
             command.deadline_ms);
  fmt::print("{:<12} {:>9} {:>9} {:>9} {:>8} {:>9} {:>11}  {}\n", "whole calls", "p50 ms", "p99 ms", "worst ms",
             "missed", "frames/s", "mean change", "the last frame is off by");
  if (request.frame.cache_every == 1) {
    print(frames, "all", command.deadline_ms, "-");
  } else {
    const FrameTimes expected = pipeline.draw(command.frames, true);
    print(frames, fmt::format("1 in {}", request.frame.cache_every), command.deadline_ms,
          fmt::format("{:.1f} % (relative L2)", 100 * relative_l2(frames.last, expected.last)));
    print(expected, "all", command.deadline_ms, "-");
  }
  const int fps = std::clamp(static_cast<int>(std::lround(1e3 / command.deadline_ms)), 1, kMostFps);
  if (!out.empty()) files.write("--out", encode_animated_png(out, pictures, fps));
  if (!command.times.empty()) files.write("--times", times_csv(frames, command.deadline_ms));
  files.commit();
  return kDone;
}

}  // namespace

void add_stream_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "stream", "Draw pictures that follow each other, and time each against a deadline", stream);
  add_drawing_options(command, arguments.asked, arguments.device);
  add_size_option(command, arguments.asked.sizes, "the network's own", true, "frames");
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
  command.add_option("--first-steps", arguments.asked.steps, "Steps of the first picture (default: the network's own)")
      ->check(CLI::Range(1, 1000));
  add_output_file(command, "--out", arguments.asked.out, "Animated PNG of the frames (default: none is kept)");
  command.add_option("--zoom", arguments.asked.zoom, "Enlarge each pixel to ZOOM x ZOOM")->check(CLI::Range(1, 64));
  add_output_file(command, "--times", arguments.times, "CSV file of the frames' times");
}

}  // namespace noisefloor
