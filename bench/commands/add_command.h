// Adding a subcommand of the program.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "bench/commands/commands.h"

namespace noisefloor {

// A subcommand and its arguments, which `run` gets when the command line has been read. Where it has subcommands of its
// own, and one was given, that one runs.
template <class Arguments>
std::pair<CLI::App&, Arguments&> add_command(CLI::App& app, const CommandResult& result, const std::string& name,
                                             const std::string& about, int (*run)(const Arguments&)) {
  CLI::App* const command = app.add_subcommand(name, about);
  const auto arguments = std::make_shared<Arguments>();
  command->callback([=] {
    if (command->get_subcommands().empty()) *result = [=] { return run(*arguments); };
  });
  return {*command, *arguments};
}

}  // namespace noisefloor
