#include "bench/commands/selection_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "bench/commands/commands.h"
#include "kernels/core/listed.h"
#include "networks/network.h"

namespace noisefloor {
namespace {

// Small enough to be run often: one real network, and on a GPU the streaming cases that show its bandwidth.
constexpr const char* kDefaultNetworks[] = {"adm64-b1", "stream"};

// Whole networks that such a sweep has, by their rows.
std::vector<std::string> default_whole_networks(bool (*so)(const networks::NetworkInfo&)) {
  std::vector<std::string> names;
  for (const networks::NetworkInfo& info : networks::all_networks())
    for (const std::int64_t batch : info.swept)
      if (so(info)) names.push_back(fmt::format("{}-b{}", info.name, batch));
  return names;
}

}  // namespace

Selection SelectionOptions::selection(const std::vector<ProblemEntry>& loaded, bool host) const {
  Selection selection{split_list(ops), split_list(networks), split_list(variants), split_list(kinds),
                      split_list(dtypes)};
  selection.without = split_list(without);
  if (selection.dtypes.empty()) throw InvalidInput("--dtypes is empty");
  if (selection.networks.empty()) {
    const auto known = network_names(loaded);
    const auto add = [&](std::vector<std::string>& names, const std::string& name) {
      if (std::find(known.begin(), known.end(), name) != known.end()) names.emplace_back(name);
    };
    for (const char* name : kDefaultNetworks)
      if (!(host && std::string(name) == "stream")) add(selection.networks, name);
    const auto whole =
        host ? default_whole_networks([](const networks::NetworkInfo& info) { return info.swept_on_hosts; })
             : default_whole_networks([](const networks::NetworkInfo&) { return true; });
    for (const std::string& name : whole) add(selection.whole_networks, name);
  }
  return selection;
}

std::vector<ProblemEntry> SelectionOptions::load() const {
  return load_problems(problems.empty() ? default_problem_folder() : std::filesystem::path(problems));
}

void SelectionOptions::add_to(CLI::App& command, const char* default_kinds) {
  command.add_option("--ops", ops, "Ops, comma-separated (default: all)");
  command.add_option(
      "--networks", networks,
      fmt::format(
          "Networks, or sets of problems such as stream, comma-separated, or 'all' (default: {}, on a GPU also {}; "
          "whole networks:\n{}, on a GPU also {})",
          kDefaultNetworks[0], kDefaultNetworks[1],
          listed(default_whole_networks([](const networks::NetworkInfo& info) { return info.swept_on_hosts; }), "and"),
          listed(default_whole_networks([](const networks::NetworkInfo& info) { return !info.swept_on_hosts; }),
                 "and")));
  command.add_option("--without", without, "Leave out the problems of these networks (another run may have them)");
  command.add_option("--variants", variants, "Variants or baselines by name (default: all)");
  command.add_option(
      "--kinds", kinds,
      fmt::format("host, naive, tiled, tensor_core, ptx, baseline, network (default: {})", default_kinds));
  command
      .add_option("--dtypes", dtypes,
                  "bf16, fp16, fp32; problems whose file names a dtype (column dtype: casts, preconditioning) are "
                  "swept in that one")
      ->capture_default_str();
  command.add_option("--problems", problems, "Folder of problem files, <op>.csv (default: bench/problems)");
}

}  // namespace noisefloor
