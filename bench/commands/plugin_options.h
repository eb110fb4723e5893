// --plugin: of `sweep`, `run`, `duel` and `list`.
#pragma once

#include "bench/commands/commands.h"
#include "bench/sweep/plugins.h"

namespace noisefloor {

void add_plugin_options(CLI::App& command, PluginOptions& options);

}  // namespace noisefloor
