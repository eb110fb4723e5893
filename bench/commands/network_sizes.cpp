#include "bench/commands/network_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

using namespace networks;

using InputKind = NetworkTensor::Kind;

// How many times as high and wide as what it computes on is what a network draws.
std::int64_t enlarges(const NetworkInfo& info) {
  return *info.decoder == '\0' ? 1 : require_network(info.decoder).enlarges;
}

// "multiples of 8 (adm64), of 2 (digits)"; "its own alone" where a network has no other.
std::string sides(bool of_pictures) {
  std::map<std::int64_t, std::vector<std::string>> who;
  for (const NetworkInfo& info : all_networks())
    if (!of_pictures || !info.decodes()) who[info.divisor * (of_pictures ? enlarges(info) : 1)].emplace_back(info.name);
  std::vector<std::string> parts;
  for (const auto& [divisor, names] : who)
    parts.push_back(fmt::format("{} ({})",
                                divisor == 0   ? "its own alone"
                                : divisor == 1 ? "any"
                                               : fmt::format("a multiple of {}", divisor),
                                fmt::join(names, ", ")));
  return listed(parts, "or");
}

std::string having(bool (*has)(const NetworkInfo&)) {
  const std::vector<std::string> names = networks_where(has);
  return names.empty() ? "no network has them yet" : "for " + listed(names, "and");
}

// The dimensions of an input that are sizes, counted from the last.
std::vector<std::pair<SizeField, std::size_t>> sizes_in(const NetworkInfo& info, InputKind kind) {
  const auto field = [](std::int64_t Sizes::*size) {
    const auto fields = size_fields();
    return *std::find_if(fields.begin(), fields.end(), [&](const SizeField& one) { return one.size == size; });
  };
  if (kind == InputKind::tokens) return {{field(&Sizes::tokens), 1}};
  if (kind == InputKind::text) return {{field(&Sizes::tokens), 2}};
  if (kind != InputKind::image) return {};
  std::vector<std::pair<SizeField, std::size_t>> all{{field(&Sizes::height), 2}, {field(&Sizes::width), 1}};
  if (info.most_frames > 1) all.push_back({field(&Sizes::frames), 4});
  return all;
}

}  // namespace

void add_size_options(CLI::App& command, Sizes& sizes, const char* otherwise, bool of_pictures,
                      std::string_view without) {
  const char* const image = of_pictures ? "of the picture in pixels" : "of an image, or of the latents in its place";
  const std::map<std::string_view, std::string> described{
      {"height", fmt::format("Height {}: {}", image, sides(of_pictures))},
      {"width", fmt::format("Width {}; the same multiples", image)},
      {"frames", "Frames of a video; " + having([](const NetworkInfo& info) { return info.most_frames > 1; })},
      {"tokens", "Tokens of the text; " + having([](const NetworkInfo& info) { return info.tokens > 0; })}};
  for (const auto& [name, meaning, size, most] : size_fields())
    if (name != without)
      command
          .add_option(fmt::format("--{}", name), sizes.*size,
                      fmt::format("{} (default: {})", described.at(name), otherwise))
          ->check(CLI::Range(std::int64_t{1}, most));
}

PictureSides picture_sides(const NetworkInfo& info) {
  const std::int64_t times = enlarges(info);
  return {info.image.height * times, info.image.width * times, info.divisor * times};
}

Sizes latents_of_pictures(const NetworkInfo& info, Sizes sizes) {
  const std::int64_t times = enlarges(info);
  NetworkInfo pictures = info;
  const auto [height, width, side] = picture_sides(info);
  pictures.image.height = height, pictures.image.width = width, pictures.divisor = side;
  (void)pictures.resolved(sizes);
  for (std::int64_t* size : {&sizes.height, &sizes.width}) *size /= times;
  return sizes;
}

Sizes sizes_of_inputs(const NetworkInfo& info, const Sizes& asked, std::span<const FileTensor> tensors,
                      const std::string& path) {
  (void)info.resolved(asked);
  Sizes sizes = asked;
  for (const NetworkTensor& input : info.build({}).inputs) {
    const auto tensor =
        std::find_if(tensors.begin(), tensors.end(), [&](const FileTensor& one) { return one.name == input.name; });
    if (tensor == tensors.end() || tensor->shape.size() != input.shape.size()) continue;
    for (const auto& [field, from_last] : sizes_in(info, input.kind)) {
      const std::int64_t there = tensor->shape[tensor->shape.size() - from_last];
      const std::string where = fmt::format("{}: tensor {} is [{}]", path, input.name, fmt::join(tensor->shape, ", "));
      if (asked.*field.size != 0 && asked.*field.size != there)
        throw InvalidInput(fmt::format("{}, of {} {}, which contradicts --{} {}", where, field.name, there, field.name,
                                       asked.*field.size));
      if (there < 1 || there > field.most)
        throw InvalidInput(fmt::format("{}: {} {} is out of range (1 to {})", where, field.name, there, field.most));
      Sizes one;
      one.*field.size = sizes.*field.size = there;
      try {
        (void)info.resolved(one);
      } catch (const InvalidInput& error) {
        throw InvalidInput(fmt::format("{}: {}", where, error.what()));
      }
    }
  }
  return sizes;
}

}  // namespace noisefloor
