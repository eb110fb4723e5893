// noisefloor sample: pictures from noise.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "bench/commands/add_command.h"
#include "bench/commands/decoding.h"
#include "bench/commands/sample_arguments.h"
#include "bench/pipeline/animation.h"
#include "bench/pipeline/conditioning.h"
#include "bench/pipeline/drift.h"
#include "bench/pipeline/finite.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/pipeline/pictures.h"
#include "reports/run/files.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr double kSecondsBetweenReports = 0.5;
constexpr int kFrameDelay = 8, kLastFrameDelay = 200;  // of a GIF, in hundredths of a second

// Ends the line of progress, whatever ends the sampling.
struct ProgressLine {
  ~ProgressLine() { fmt::print(stderr, "\n"); }
};

// What a sample run gathers over its batches.
struct Gathered {
  std::vector<float> images, noise, latents;  // latents: of which a decoder made the images
  // By step, -1 for the noise itself: the latents of every image (for a strip alone: of the first batch), as far from
  // black and white at every noise level as a picture is.
  std::map<int, std::vector<float>> frames;
};

// A row an image, a column a kept step.
Picture make_strip(const Gathered& gathered, std::int64_t images, const Network& network, std::int64_t zoom) {
  const auto numbers = static_cast<std::ptrdiff_t>(network.image.elements());
  std::vector<float> strip;
  for (std::int64_t image = 0; image < images; ++image)
    for (const auto& [step, frame] : gathered.frames)
      strip.insert(strip.end(), frame.begin() + image * numbers, frame.begin() + (image + 1) * numbers);
  return make_grid(strip, network.image, static_cast<std::int64_t>(gathered.frames.size()), zoom);
}

std::string frames_gif(const std::filesystem::path& file, const Gathered& gathered, const Network& network,
                       std::int64_t columns, std::int64_t zoom) {
  std::vector<Picture> pictures;
  for (const auto& [step, frame] : gathered.frames) pictures.push_back(make_grid(frame, network.image, columns, zoom));
  return encode_gif(file, pictures, kFrameDelay, kLastFrameDelay);
}

// All videos, at each of their frames.
std::vector<Picture> make_grids(std::span<const float> videos, const ImageShape& video, std::int64_t columns,
                                std::int64_t zoom) {
  ImageShape one = video;
  one.frames = 1;
  const auto numbers = static_cast<std::size_t>(one.elements()), frames = static_cast<std::size_t>(video.frames);
  std::vector<Picture> pictures;
  for (std::size_t frame = 0; frame < frames; ++frame) {
    std::vector<float> images;
    for (std::size_t at = frame * numbers; at < videos.size(); at += frames * numbers)
      images.insert(images.end(), videos.begin() + static_cast<std::ptrdiff_t>(at),
                    videos.begin() + static_cast<std::ptrdiff_t>(at + numbers));
    pictures.push_back(make_grid(images, one, columns, zoom));
  }
  return pictures;
}

void write_videos(OutputFiles& files, const SampleArguments& arguments, const std::vector<Picture>& frames) {
  const int fps = arguments.frames_per_second(), delay = static_cast<int>(std::lround(100.0 / fps));
  files.write("--out", encode_animated_png(arguments.out, frames, fps));
  if (!arguments.gif.empty()) files.write("--gif", encode_gif(arguments.gif, frames, delay, delay));
  if (arguments.folder.empty()) return;
  const std::filesystem::path folder = files.partial("--folder");
  for (std::size_t frame = 0; frame < frames.size(); ++frame) {
    const std::filesystem::path file = folder / fmt::format("frame-{:04}.png", frame);
    write_atomically(file, encode_png(file, frames[frame]));
  }
}

void write_tensors(const std::filesystem::path& file, const Network& network, const ImageShape& picture,
                   const Gathered& gathered, const std::vector<int>& labels) {
  const auto n = static_cast<std::int64_t>(labels.size());
  const auto shape_of = [&](const ImageShape& image) {
    std::vector<std::int64_t> shape{n, image.height, image.width, image.channels};
    if (image.frames > 1) shape.insert(shape.begin() + 1, image.frames);
    return channels_first_shape(shape);
  };
  const std::vector<float> images = to_channels_first(gathered.images, picture);
  const std::vector<float> noise = to_channels_first(gathered.noise, network.image);
  const std::vector<float> latents = to_channels_first(gathered.latents, network.image);
  std::vector<std::int64_t> wide(labels.begin(), labels.end());
  std::vector<FileTensor> tensors{
      {"images", safetensors_name(DType::fp32), shape_of(picture), std::as_bytes(std::span(images))},
      {"noise", safetensors_name(DType::fp32), shape_of(network.image), std::as_bytes(std::span(noise))},
      {"labels", safetensors_name(DType::int64), {n}, std::as_bytes(std::span(wide))},
  };
  if (!latents.empty())
    tensors.push_back(
        {"latents", safetensors_name(DType::fp32), shape_of(network.image), std::as_bytes(std::span(latents))});
  write_safetensors(file, tensors, {{"network", network.name()}, {kLayoutKey, kChannelsFirst}});
}

// What calls that are not whole gain and cost, of one batch: nobody reads the one without the other. Both loops in
// turns, behind a turn that is not timed and on a GPU records.
void print_cost_of_shallow_calls(int cache_every, Sampler& shallow, Sampler& whole,
                                 const std::function<std::vector<float>(Sampler&)>& draw) {
  constexpr int kTurns = 3;
  std::vector<double> seconds[2];
  std::vector<float> x0[2];
  for (int turn = 0; turn <= kTurns; ++turn)
    for (const int side : {0, 1}) {
      const auto start = std::chrono::steady_clock::now();
      x0[side] = draw(side == 0 ? shallow : whole);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (turn > 0) seconds[side].push_back(took.count());
    }
  const double found = median(seconds[0]), expected = median(seconds[1]);
  fmt::print(
      "one call in {} whole: {:.4g} s a batch, {:.4g} s with all whole, {:.2f} times as fast; x0 is off by "
      "{:.1f} % (relative L2)\n",
      cache_every, found, expected, expected / found, 100 * relative_l2(x0[0], x0[1]));
}

int sample(const SampleArguments& given) {
  SampleArguments arguments = given;
  // Whatever is wrong is said before anything is loaded, or (drawing) measured.
  const std::vector<StepPlan> steps = resolve_options(arguments);
  const SamplingOptions& options = arguments.options;
  const NetworkInfo& info = arguments.row();
  const bool guided = options.guidance != 0, latent = *info.decoder != '\0';
  OutputFiles files;
  add_inputs(files, arguments.network);
  NetworkArguments decoder;
  if (latent) {
    decoder = decoder_arguments(info, arguments.network);
    add_inputs(files, decoder);
  }
  files.add_input("--conditioning", arguments.conditioning);
  files.add("--out", arguments.out);
  files.add("--tensor", arguments.tensor);
  files.add("--strip", arguments.strip);
  files.add("--gif", arguments.gif);
  files.add_folder("--folder", arguments.folder);
  std::filesystem::path rescue = arguments.out + ".latents.safetensors";
  if (latent && files.is_stream("--out")) {
    std::error_code none;  // TMPDIR is no folder
    const std::filesystem::path temporary = std::filesystem::temp_directory_path(none);
    rescue = (none ? "/tmp" : temporary) / fmt::format("noisefloor.{}.latents.safetensors", getpid());
  }
  if (latent) files.add("beside --out, for latents that cannot be decoded,", rescue);
  check_breakdown(arguments.breakdown, arguments.network, files);
  const std::int64_t batch = arguments.images_at_a_time();

  std::optional<Conditioning> conditioning;
  if (!info.conditioning.empty()) {
    conditioning.emplace(arguments.conditioning, info, guided);
    arguments.sizes = conditioning->sizes(arguments.sizes);
    (void)info.resolved(arguments.sizes);
  }
  require_decoder(info, decoder);

  OpenNetwork open = build_network(*arguments.settings, arguments.network,
                                   {.batch = batch,
                                    .sampling = true,
                                    .guided = guided,
                                    .shallow_blocks = arguments.shallow_blocks(),
                                    .levels_ahead = arguments.levels_ahead(calls_of(steps)),
                                    .sizes = arguments.sizes});
  const Network& network = *open.network;
  arguments.say_if_not_ahead(network);
  std::optional<Decoding> decoding;
  if (latent) {
    const NetworkInfo& row = require_network(info.decoder);
    decoder.dtype = decoder_dtype(row, decoder, open.options.dtype);
    decoding.emplace(row, decoder, network.image, open.platform, arguments.chunk.value_or(0));
    if (const std::int64_t chunk = decoding->chunk(); !arguments.chunk && chunk < network.image.frames)
      fmt::print(stderr, "{} decodes {} of {} frames at a time, as memory allows; frames do not see those of others\n",
                 row.name, chunk, network.image.frames);
  }
  const ImageShape picture = decoding ? decoding->picture() : network.image;
  const auto [labels, columns, zoom] = plan_drawing(arguments, network, picture);
  if (conditioning) conditioning->read(network, arguments.count);
  if (arguments.network.verbose) list_settings(arguments);
  open.say_what_is_read(arguments.network.verbose);
  if (decoding) decoding->say_what_is_read();
  if (decoding) {
    decoding->check_weights();
    open.check_weights();
    decoding->rehearse();
  }
  std::optional<Sampler> made, whole;  // end before the platform does
  const std::size_t samplers = options.cache_every > 1 ? 2 : 1;
  start_network(open, arguments.network,
                {[&](const Network& other) { return samplers * sampler_bytes(other, options); },
                 [&](OpenNetwork& opened) {
                   made.emplace(*opened.platform, *opened.executor, options);
                   if (samplers == 1) return;
                   SamplingOptions all_whole = options;
                   all_whole.cache_every = 1;
                   whole.emplace(*opened.platform, *opened.executor, all_whole);
                 }});
  Sampler& sampler = *made;
  if (options.guidance != 0 && options.guidance != 1)  // at 1 nothing is compared
    if (const std::string note = guidance_note(*network.info); !note.empty()) fmt::print(stderr, "{}\n", note);
  if (const std::string note = levels_note(*network.info, steps); !note.empty()) fmt::print(stderr, "{}\n", note);

  if (arguments.breakdown.wanted()) {
    std::vector<int> first_labels(static_cast<std::size_t>(batch));
    std::copy_n(labels.begin(), batch, first_labels.begin());
    if (conditioning) conditioning->set(*open.platform, *open.executor, 0);
    sampler.prepare(first_labels);
    break_down(
        arguments.breakdown, arguments.network, open, [&] { return sampler.enqueue_first_step(); },
        fmt::format("the first of {} steps of {}, {}", options.steps, arguments.sampler,
                    images_in_words(batch, arguments.moves)),
        files);
  }

  Gathered gathered;
  std::optional<ProgressLine> progress(std::in_place);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::int64_t first = 0, wanted = 0;
  double said = -kSecondsBetweenReports;  // when
  sampler.report_to([&](std::size_t taken) {
    const bool last = first + wanted == arguments.count && taken == steps.size();
    if (!last && seconds() - said < kSecondsBetweenReports) return;  // batches may take less
    said = seconds();
    fmt::print(stderr, "\r{} {} to {} of {}: step {}/{}, {:.0f} s ", arguments.moves ? "videos" : "images", first,
               first + wanted - 1, arguments.count, taken, options.steps, seconds());
    std::fflush(stderr);
  });
  for (; first < arguments.count; first += batch) {
    std::vector<int> batch_labels(static_cast<std::size_t>(batch), 0);  // the last batch may be filled up
    wanted = std::min(batch, arguments.count - first);
    std::copy_n(labels.begin() + first, wanted, batch_labels.begin());
    const bool kept = arguments.watched() && (!arguments.gif.empty() || first == 0);
    const auto observer = [&](int step, const void* latents) {
      if (!arguments.shown(step)) return;
      std::vector<float> frame(static_cast<std::size_t>(wanted * network.image.elements()));
      open.platform->download(frame.data(), latents, frame.size() * sizeof(float));
      const double sigma = step < 0 ? steps.front().churned_from : steps[static_cast<std::size_t>(step)].sigma_next;
      for (float& value : frame) value = static_cast<float>(value / std::sqrt(1 + sigma * sigma));
      std::vector<float>& frames = gathered.frames[step];
      frames.insert(frames.end(), frame.begin(), frame.end());
    };
    if (conditioning) {
      conditioning->set(*open.platform, *open.executor, first);
      sampler.begin_from(conditioning->noise(network, first));
    }
    const std::vector<float> images = sampler.run(batch_labels, arguments.first_image + first,
                                                  kept ? Sampler::Observer(observer) : Sampler::Observer());
    const std::size_t numbers = static_cast<std::size_t>(wanted * network.image.elements());
    require_finite(std::span(images).first(numbers), network.image.elements(), arguments.first_image + first);
    gathered.images.insert(gathered.images.end(), images.begin(),
                           images.begin() + static_cast<std::ptrdiff_t>(numbers));
    gathered.noise.insert(gathered.noise.end(), sampler.initial_noise().begin(),
                          sampler.initial_noise().begin() + static_cast<std::ptrdiff_t>(numbers));
  }
  double took = seconds();
  sampler.report_to({});
  progress.reset();
  if (whole) {
    std::vector<int> first_labels(static_cast<std::size_t>(batch));
    std::copy_n(labels.begin(), batch, first_labels.begin());
    print_cost_of_shallow_calls(options.cache_every, sampler, *whole, [&](Sampler& one) {
      if (conditioning) {
        conditioning->set(*open.platform, *open.executor, 0);
        one.begin_from(conditioning->noise(network, 0));
      }
      return one.run(first_labels, arguments.first_image);
    });
  }
  std::size_t most_bytes = open.executor->bytes() + samplers * sampler_bytes(network, options);
  if (decoding) {
    most_bytes = std::max(most_bytes, decoding->bytes());
    gathered.latents = std::move(gathered.images);
    made.reset();
    whole.reset();
    open.executor.reset();  // makes room
    const double begun = seconds();
    gathered.images = decoding->run(gathered.latents, arguments.first_image, rescue);
    took += seconds() - begun;
  }

  if (arguments.moves)
    write_videos(files, arguments, make_grids(gathered.images, picture, columns, zoom));
  else
    files.write("--out", encode_png(arguments.out, make_grid(gathered.images, picture, columns, zoom)));
  if (!arguments.tensor.empty()) write_tensors(files.partial("--tensor"), network, picture, gathered, labels);
  if (!arguments.strip.empty())
    files.write("--strip", encode_png(arguments.strip, make_strip(gathered, batch, network, zoom)));
  if (!arguments.gif.empty() && !arguments.moves)
    files.write("--gif", frames_gif(arguments.gif, gathered, network, columns, zoom));
  files.commit();
  const auto count = static_cast<double>(arguments.count);
  fmt::print("{} {} by {} in {} steps: {:.2f} s, {:.1f} ms {}, {:.1f} MB on the device at most; wrote {}\n",
             arguments.count, network.name(), arguments.sampler, options.steps, took, 1e3 * took / count,
             arguments.moves
                 ? fmt::format("a video, {:.2f} frames a second", count * static_cast<double>(picture.frames) / took)
                 : "an image",
             static_cast<double>(most_bytes) / 1e6, arguments.out);
  return kDone;
}

}  // namespace

void add_sample_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(app, result, "sample", "Draw pictures with a network, from noise", sample);
  add_sample_options(command, arguments);
}

}  // namespace noisefloor
