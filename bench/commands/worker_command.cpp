// noisefloor worker: makes cases ready and times them where another program asks (`noisefloor ab`).
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/commands/commands.h"
#include "bench/measure/case_server.h"
#include "bench/platform/build_info.h"
#include "bench/plugin/plugin_library.h"
#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

int serve_cases(const std::string& device, const std::string& plugin) {
  const auto platform = open_platform(device);
  const PlatformDescription& description = platform->description();
  // Answers have standard output to themselves: what libraries print goes to standard error.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answers(fdopen(dup(STDOUT_FILENO), "w"), std::fclose);
  if (!answers || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) throw std::runtime_error("standard output cannot be written");
  bool heard = true;
  const auto write = [&](const std::string& line) {
    heard = heard && std::fprintf(answers.get(), "%s\n", line.c_str()) >= 0 && std::fflush(answers.get()) == 0;
  };
  Suite known = suite();
  try {
    if (!plugin.empty()) known = with_rows(suite(), load_plugin(plugin, suite()));
  } catch (const InvalidInput& error) {
    write(nlohmann::json{{"failed", "not_built"}, {"reason", error.what()}}.dump());
    return kCouldNot;
  }
  CaseServer server(*platform, known);
  serve(server,
        {{"commit", build_info().commit},
         {"device", description.name},
         {"gpu_uuid", description.uuid},
         {"arch", platform->arch_text()},
         {"platform", description.is_host ? "host" : "gpu"}},
        std::cin, write);
  return heard ? kDone : kCouldNot;
}

}  // namespace

void add_worker_command(CLI::App& app, CommandResult result) {
  CLI::App* command = app.add_subcommand("worker", "Time cases where another program asks for it, by lines of JSON");
  auto device = std::make_shared<std::string>();
  command->add_option("--device", *device, "CUDA device number, or 'host' (default: 0 where there is one)");
  auto plugin = std::make_shared<std::string>();
  command->add_option("--plugin", *plugin, "A shared library whose rows it has too (docs/plugins.md)");
  command->footer(
      "`noisefloor ab` starts one of each build, `--plugin` of other commands one of each file. bench/measure/worker.h "
      "has the questions and answers.\n"
      "Exit code: 0 at the end of the questions, 2 where nobody heard the answers or the device cannot be opened.");
  command->callback([=] { *result = [=] { return serve_cases(*device, *plugin); }; });
}

}  // namespace noisefloor
