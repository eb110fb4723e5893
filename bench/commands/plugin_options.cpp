#include "bench/commands/plugin_options.h"

#include <CLI/CLI.hpp>

namespace noisefloor {

void add_plugin_options(CLI::App& command, PluginOptions& options) {
  command
      .add_option("--plugin", options.files,
                  "A kernel of yours as a row, measured in a process of its own: a shared library with "
                  "noisefloor/plugin.h, or a Python file (docs/plugins.md); may be given several times")
      ->allow_extra_args(false);
  command
      .add_option(
          "--plugin-seconds", options.seconds,
          "How long a plugin's process may take for a case before it is ended as hung; for reading the file, 120")
      ->check(CLI::PositiveNumber)
      ->check(why_not_finite)
      ->capture_default_str();
}

}  // namespace noisefloor
