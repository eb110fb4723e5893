// noisefloor sample: pictures from noise.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "bench/commands/commands.h"
#include "bench/commands/pipeline_options.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/pipeline/pipeline.h"
#include "bench/sweep/suite.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr double kSecondsBetweenReports = 0.5;
constexpr int kFrameDelay = 8, kLastFrameDelay = 200;            // of a GIF, in hundredths of a second
constexpr std::int64_t kMostFirstImage = std::int64_t{1} << 62;  // so that numbers of images stay below 2^63

struct SampleCommand {
  SampleArguments asked;
  BreakdownArguments breakdown;
  std::string device;
};

// A line on stderr, rewritten as steps are taken; ended whatever ends the sampling.
class ProgressLine {
 public:
  explicit ProgressLine(const SampleRequest& request) : request_(&request) {}
  ProgressLine(const ProgressLine&) = delete;
  ~ProgressLine() { fmt::print(stderr, "\n"); }

  void show(const Pipeline::Step& step) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const bool last = step.first + step.images == request_->asked.count && step.taken == request_->steps.size();
    if (!last && seconds - said_ < kSecondsBetweenReports) return;  // batches may take less
    said_ = seconds;
    fmt::print(stderr, "\r{} {} to {} of {}: step {}/{}, {:.0f} s ", request_->moves() ? "videos" : "images",
               step.first, step.first + step.images - 1, request_->asked.count, step.taken, request_->options.steps,
               seconds);
    std::fflush(stderr);
  }

 private:
  const SampleRequest* request_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double said_ = -kSecondsBetweenReports;
};

// Where latents go that cannot be decoded: beside --out.
fs::path rescue_file(const std::string& out, const OutputFiles& files) {
  if (!files.is_stream("--out")) return out + ".latents.safetensors";
  std::error_code none;  // TMPDIR is no folder
  const fs::path temporary = fs::temp_directory_path(none);
  return (none ? "/tmp" : temporary) / fmt::format("noisefloor.{}.latents.safetensors", getpid());
}

void add_files(OutputFiles& files, const SampleCommand& command, const SampleRequest& request) {
  const SampleArguments& asked = request.asked;
  add_inputs(files, request);
  files.add("--out", asked.out);
  files.add("--tensor", asked.tensor);
  files.add("--strip", asked.strip);
  files.add("--gif", asked.gif);
  files.add_folder("--folder", asked.folder);
  if (request.latent()) files.add("beside --out, for latents that cannot be decoded,", rescue_file(asked.out, files));
  check_breakdown(command.breakdown, asked.model.plan, command.device, files);
}

// As `forward` takes them.
void keep_latents(const fs::path& file, const PipelineModels& models, const std::vector<float>& latents) {
  const ModelRequest decoder = models.request.asked.model.of_decoder(models.request.row());
  try {
    OutputFiles files;
    files.add("latents", file);
    const ImageTensor x{"x", models.drawing.latents, latents, models.request.moves()};
    files.write("latents",
                [&](const fs::path& place) { write_image_tensors(place, decoder.network, std::span(&x, 1)); });
    files.commit();
    fmt::print(stderr,
               "\nthe pictures could not be decoded; their latents are in {}, which noisefloor forward {} --weights {} "
               "--input {} --output FILE takes\n",
               file.string(), decoder.network, decoder.weights, file.string());
  } catch (const std::exception& error) {
    fmt::print(stderr, "\nthe pictures could not be decoded, nor their latents kept: {}\n", error.what());
  }
}

void write_tensors(const fs::path& file, const PipelineModels& models, const Images& images) {
  const Drawing& drawing = models.drawing;
  const std::vector<std::int64_t> labels(drawing.labels.begin(), drawing.labels.end());
  const bool moves = drawing.picture.frames > 1;
  std::vector<ImageTensor> tensors{{"images", drawing.picture, images.images, moves},
                                   {"noise", drawing.latents, images.noise, moves}};
  if (!images.latents.empty()) tensors.push_back({"latents", drawing.latents, images.latents, moves});
  write_image_tensors(file, models.request.row().name, tensors, labels);
}

void write_images(OutputFiles& files, const PipelineModels& models, const Images& images) {
  const SampleArguments& asked = models.request.asked;
  const std::vector<Picture> grids = models.drawing.grids(images);
  const int fps = asked.fps.value_or(kFramesPerSecond), delay = static_cast<int>(std::lround(100.0 / fps));
  const bool moves = models.request.moves();
  files.write("--out", moves ? encode_animated_png(asked.out, grids, fps) : encode_png(asked.out, grids.front()));
  if (!asked.tensor.empty())
    files.write("--tensor", [&](const fs::path& place) { write_tensors(place, models, images); });
  if (!asked.strip.empty())
    files.write("--strip", encode_png(asked.strip, models.drawing.strip(images, models.request.batch())));
  if (!asked.gif.empty())
    files.write("--gif", moves ? encode_gif(asked.gif, grids, delay, delay)
                               : encode_gif(asked.gif, models.drawing.way(images), kFrameDelay, kLastFrameDelay));
  for (std::size_t frame = 0; frame < grids.size() && !asked.folder.empty(); ++frame) {
    const fs::path file = files.partial("--folder") / fmt::format("frame-{:04}.png", frame);
    write_atomically(file, encode_png(file, grids[frame]));
  }
  files.commit();
}

void print_result(const Pipeline& pipeline, const Images& images) {
  const SampleRequest& request = pipeline.models().request;
  const auto count = static_cast<double>(request.asked.count);
  if (const auto& cost = images.shallow_cost)
    fmt::print(
        "one call in {} whole: {:.4g} s a batch, {:.4g} s with all whole, {:.2f} times as fast; x0 is off by {:.1f} % "
        "(relative L2)\n",
        request.options.cache_every, cost->seconds, cost->seconds_all_whole, cost->seconds_all_whole / cost->seconds,
        100 * cost->off);
  const auto frames = static_cast<double>(pipeline.models().drawing.picture.frames);
  fmt::print(
      "{} {} by {} in {} steps: {:.2f} s, {:.1f} ms {}, {:.1f} MB on the device at most; wrote {}\n",
      request.asked.count, request.row().name, request.options.row().name, request.options.steps, images.seconds,
      1e3 * images.seconds / count,
      request.moves() ? fmt::format("a video, {:.2f} frames a second", count * frames / images.seconds) : "an image",
      static_cast<double>(pipeline.bytes()) / 1e6, request.asked.out);
}

int sample(const SampleCommand& command) {
  // Whatever is wrong is said before anything is loaded, or (the pipeline's drawing) measured.
  const SampleRequest request(command.asked);
  OutputFiles files;
  add_files(files, command, request);
  const std::unique_ptr<Platform> platform = open_platform(command.device);
  say_settings(request);
  Pipeline pipeline(request, {*platform, suite()});
  if (command.breakdown.wanted()) {
    pipeline.prepare_first_step();
    break_down(
        command.breakdown, *platform, pipeline.running().executor(), command.asked.model.plan,
        [&] { return pipeline.enqueue_first_step(); },
        fmt::format("the first of {} steps of {}, {}", request.options.steps, request.options.row().name,
                    images_in_words(request.batch(), request.moves())),
        files);
  }
  const Images images = [&] {
    ProgressLine progress(request);
    return pipeline.draw([&](const Pipeline::Step& step) { progress.show(step); },
                         [&](const std::vector<float>& latents) {
                           keep_latents(rescue_file(request.asked.out, files), pipeline.models(), latents);
                         });
  }();
  write_images(files, pipeline.models(), images);
  print_result(pipeline, images);
  return kDone;
}

}  // namespace

void add_sample_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(app, result, "sample", "Draw pictures with a network, from noise", sample);
  SampleArguments& asked = arguments.asked;
  add_drawing_options(command, asked, arguments.device);
  add_size_option(command, asked.sizes, "the network's own", true);
  add_breakdown_options(command, arguments.breakdown);
  command.add_option("--steps", asked.steps, "Steps, 1 to 1000 (default: the network's own)");
  command.add_option("--count", asked.count, "Images")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command.add_option("--first-image", asked.first_image, "Number of the first image")
      ->check(CLI::Range(std::int64_t{0}, kMostFirstImage))
      ->capture_default_str();
  command
      .add_option("--batch", asked.batch,
                  "Images at a time (default: all, at most 64); too many are refused with the network's range")
      ->check(CLI::Range(1, 65536));
  add_output_file(command, "--out", asked.out, "PNG file of the grid; for videos an animated one")->required();
  command.add_option("--columns", asked.columns, "Columns of the grid, at most one for each image")
      ->check(CLI::Range(1, 1000));
  command.add_option("--zoom", asked.zoom, "Enlarge each pixel to ZOOM x ZOOM")->check(CLI::Range(1, 64));
  add_output_file(command, "--strip", asked.strip,
                  "PNG file of the first batch's steps, one row for each image; with --every");
  add_output_file(command, "--gif", asked.gif,
                  "Animated GIF of the grid from noise to pictures, with --every; for videos, of the videos");
  command.add_option("--folder", asked.folder, "New folder of a video's frames: frame-0000.png and on");
  command.add_option("--fps", asked.fps, "Frames of a video per second (default: 7)")->check(CLI::Range(1, 50));
  command
      .add_option("--chunk", asked.chunk,
                  "Decode this many frames of a video at a time, which do not see others (default: all that fit)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--every", asked.every, "Strip and GIF show the noise, every K-th step and the last");
  add_output_file(command, "--tensor", asked.tensor,
                  "Safetensors file for images [n, channels, height, width], as forward takes them, labels, the "
                  "noise, and latents if the network draws them");
}

}  // namespace noisefloor
