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

}  // namespace noisefloor
