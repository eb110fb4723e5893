// noisefloor ceilings: what the device can really do.
#include <fmt/format.h>

#include "bench/ceilings/store.h"
#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/platform/build_info.h"

namespace noisefloor {
namespace {

int ceilings(const std::string& device, bool refresh, const std::string& out) {
  OutputFiles outputs;
  outputs.add("--out", out);
  const auto platform = open_platform(device);
  const PlatformDescription& description = platform->description();
  const auto log = [](const std::string& message) { fmt::print(stderr, "{}\n", message); };
  const Ceilings measured = load_or_measure(description.is_host ? kHostDevice : description.index, refresh,
                                            build_info().commit, log, CeilingsProcess::this_one);
  if (!out.empty()) write_ceilings(outputs.partial("--out"), measured);
  outputs.commit();
  fmt::print("{}\n{:<14} {:>12} {:>12} {:>8}  unit\n", measured.device, "ceiling", "measured", "datasheet", "%");
  for (const Ceiling& row : measured.rows) {
    const bool known = row.datasheet > 0;
    fmt::print("{:<14} {:>12.1f} {:>12} {:>8}  {}\n", row.name, row.value,
               known ? fmt::format("{:.1f}", row.datasheet) : "-",
               known ? fmt::format("{:.1f}", 100 * row.value / row.datasheet) : "-", row.unit);
  }
  return kDone;
}

}  // namespace

void add_ceilings_command(CLI::App& app, CommandResult result) {
  CLI::App* command =
      app.add_subcommand("ceilings", "Measure copy and cache bandwidth and the rates of the arithmetic pipes");
  auto device = std::make_shared<std::string>();
  auto refresh = std::make_shared<bool>(false);
  auto out = std::make_shared<std::string>();
  command->add_option("--device", *device, "CUDA device number, or 'host' (default: 0 where there is one)");
  command->add_flag("--refresh", *refresh, "Measure again rather than read the cache");
  command->add_option("--out", *out, "CSV file to write");
  command->callback([=] { *result = [=] { return ceilings(*device, *refresh, *out); }; });
}

}  // namespace noisefloor
