#include "bench/commands/plugin_options.h"

#include <CLI/CLI.hpp>

namespace noisefloor {

void add_plugin_options(CLI::App& command, PluginOptions& options) {
  command
      .add_option("--plugin", options.files,
                  "Measure your own kernel as a row, in its own process: a shared library made with "
                  "noisefloor/plugin.h, or a Python file (docs/plugins.md); may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--plugin-seconds", options.seconds,
                  "End a plugin's process as hung after this many seconds in a case; it has 120 to read its file")
      ->check(CLI::PositiveNumber)
      ->check(why_not_finite)
      ->capture_default_str();
}

}  // namespace noisefloor
