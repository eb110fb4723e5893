#include "bench/pipeline/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/platform/refusal.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::int64_t kMostFrameBytes = std::int64_t{1} << 32;  // of pictures or latents, all at once

std::vector<int> labels_of(const SampleArguments& asked, const Network& network) {
  if (!asked.labels.empty() && network.classes == 0)
    throw refusal("--labels: these weights of {} have no classes", network.name());
  for (const std::int64_t label : asked.labels)
    if (label < 0 || label >= network.classes)
      throw refusal("--labels {}: {} has classes 0 to {}", label, network.name(), network.classes - 1);
  std::vector<int> labels;
  for (std::int64_t i = 0; i < asked.count; ++i)
    labels.push_back(static_cast<int>(!asked.labels.empty()
                                          ? asked.labels[static_cast<std::size_t>(i) % asked.labels.size()]
                                          : i % std::max<std::int64_t>(1, network.classes)));
  return labels;
}

ImageShape frame_of(ImageShape video) {
  video.frames = 1;
  return video;
}

// Throws where a file that is asked for would be larger than its format, or its pictures, which are kept until all are
// there, larger than what is kept.
void check_sizes(const SampleRequest& request, const Drawing& drawing) {
  const SampleArguments& asked = request.asked;
  const Picture grid = grid_outline(asked.count, frame_of(drawing.picture), drawing.columns, drawing.zoom);
  const auto hold = [](const char* option, const std::string& file, bool fits, const std::string& otherwise) {
    if (!fits) throw refusal("{} {}: {}", option, file, otherwise);
  };
  const auto hold_png = [&](const char* option, const std::string& file, const Picture& picture, const char* advice) {
    const std::int64_t bytes = png_bytes(picture.width, picture.height, picture.channels);
    hold(option, file, bytes <= kMostPngBytes,
         fmt::format("{} x {} pixels are {} bytes, but a PNG of ours has {} at most; {}", picture.width, picture.height,
                     bytes, kMostPngBytes, advice));
  };
  const auto hold_frames = [&](const char* option, const std::string& file, std::int64_t frames, const char* advice) {
    const std::int64_t latents = asked.count * drawing.latents.elements() * static_cast<std::int64_t>(sizeof(float));
    hold(option, file, !request.watched() || latents <= kMostFrameBytes / frames,
         fmt::format("{} steps of {} images' latents are {} bytes to keep, more than 2^32; lower --count or the steps",
                     frames, asked.count, frames * latents));
    const std::int64_t bytes = grid.width * grid.height * grid.channels;
    hold(option, file, bytes <= kMostFrameBytes / frames,
         fmt::format("{} frames of {} x {} pixels are {} bytes to keep, more than 2^32; {}", frames, grid.width,
                     grid.height, frames * bytes, advice));
  };
  if (!asked.out.empty()) {
    hold_png("--out", asked.out, grid, "lower --zoom or --count");
    hold_frames("--out", asked.out, std::max(drawing.picture.frames, asked.out_frames),
                "lower --zoom, --count or the frames");
  }
  if (!asked.strip.empty())
    hold_png(
        "--strip", asked.strip,
        grid_outline(request.batch() * request.frames_shown(), drawing.latents, request.frames_shown(), drawing.zoom),
        "raise --every or lower --zoom or --batch");
  if (asked.gif.empty()) return;
  hold("--gif", asked.gif, std::max(grid.width, grid.height) <= kMostGifPixels,
       fmt::format("a grid of {} x {} pixels, but a GIF's sides have {} at most; lower --zoom or change --columns",
                   grid.width, grid.height, kMostGifPixels));
  if (request.moves()) return;
  hold_frames("--gif", asked.gif, request.frames_shown(), "raise --every or lower --zoom or --count");
}

}  // namespace

Drawing::Drawing(const SampleRequest& request, const Network& network, const ImageShape& drawn)
    : latents(network.image), picture(drawn), labels(labels_of(request.asked, network)) {
  const SampleArguments& asked = request.asked;
  if (request.guided() && network.classes == 0 && network.info->conditioning.empty())
    throw refusal("--guidance: these weights of {} have no classes", network.name());
  const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(asked.count))));
  columns = asked.columns > 0 ? asked.columns : network.classes == 10 && asked.count >= 10 ? 10 : side;
  columns = std::min(columns, asked.count);
  zoom = asked.zoom > 0 ? asked.zoom : std::max<std::int64_t>(1, 32 / std::max(picture.height, picture.width));
  check_sizes(request, *this);
}

std::vector<Picture> Drawing::grids(const Images& drawn) const {
  const ImageShape one = frame_of(picture);
  const auto numbers = one.elements(), video = picture.elements();
  std::vector<Picture> pictures;
  for (std::int64_t frame = 0; frame < picture.frames; ++frame) {
    std::vector<float> images;
    for (auto at = frame * numbers; at < std::ssize(drawn.images); at += video)
      images.insert(images.end(), drawn.images.begin() + at, drawn.images.begin() + at + numbers);
    pictures.push_back(make_grid(images, one, columns, zoom));
  }
  return pictures;
}

Picture Drawing::strip(const Images& drawn, std::int64_t rows) const {
  std::vector<float> strip;
  for (std::int64_t at = 0; at < rows * latents.elements(); at += latents.elements())
    for (const auto& [step, frame] : drawn.frames)
      strip.insert(strip.end(), frame.begin() + at, frame.begin() + at + latents.elements());
  return make_grid(strip, latents, std::ssize(drawn.frames), zoom);
}

std::vector<Picture> Drawing::way(const Images& drawn) const {
  std::vector<Picture> pictures;
  for (const auto& [step, frame] : drawn.frames) pictures.push_back(make_grid(frame, latents, columns, zoom));
  return pictures;
}

}  // namespace noisefloor::pipeline
