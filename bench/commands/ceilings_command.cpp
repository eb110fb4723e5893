// noisefloor ceilings: what the device can really do.
#include <fmt/format.h>

#include "bench/ceilings/ceilings.h"
#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/platform/build_info.h"
#include "bench/platform/console.h"

namespace noisefloor {
namespace {

struct CeilingsArguments {
  std::string device, out;
  bool refresh = false;
};

int ceilings(const CeilingsArguments& arguments) {
  const std::string& out = arguments.out;
  OutputFiles outputs;
  outputs.add("--out", out);
  const auto platform = open_platform(arguments.device);
  const PlatformDescription& description = platform->description();
  const Ceilings measured = load_or_measure(description.is_host ? kHostDevice : description.index, arguments.refresh,
                                            build_info().commit, say_line, CeilingsProcess::this_one);
  if (!out.empty()) outputs.write("--out", ceilings_csv(measured));
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
  auto [command, arguments] = add_command(
      app, result, "ceilings", "Measure copy and cache bandwidth and the rates of the arithmetic pipes", ceilings);
  add_device_option(command, arguments.device);
  command.add_flag("--refresh", arguments.refresh, "Measure again; do not read the cache");
  add_output_file(command, "--out", arguments.out, "CSV file to write");
}

}  // namespace noisefloor
