// noisefloor worker: makes cases ready and times them where another program asks (`noisefloor ab`).
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/commands/commands.h"
#include "bench/counters/launch_signature.h"
#include "bench/measure/case_server.h"
#include "bench/platform/build_info.h"
#include "bench/plugin/plugin_library.h"
#include "bench/sweep/problem_files.h"
#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

// Answers have standard output to themselves: what libraries print goes to standard error.
class Answers {
 public:
  Answers() : file_(fdopen(dup(STDOUT_FILENO), "w"), std::fclose) {
    if (!file_ || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) throw std::runtime_error("standard output cannot be written");
  }
  void write(const std::string& line) {
    heard_ = heard_ && std::fprintf(file_.get(), "%s\n", line.c_str()) >= 0 && std::fflush(file_.get()) == 0;
  }
  bool heard() const { return heard_; }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  bool heard_ = true;
};

int serve_cases(Platform& platform, const Suite& known, Answers& answers, CodeWatch* code = nullptr) {
  const PlatformDescription& description = platform.description();
  CaseServer server(platform, known, code);
  serve(server,
        {{"commit", build_info().commit},
         {"device", description.name},
         {"gpu_uuid", description.uuid},
         {"arch", platform.arch_text()},
         {"platform", description.is_host ? "host" : "gpu"}},
        std::cin, [&](const std::string& line) { answers.write(line); });
  return answers.heard() ? kDone : kCouldNot;
}

int serve_plugin(Platform& platform, const std::string& file, Answers& answers) {
  const auto refuse = [&](const std::exception& error) {  // the answer to the first question
    const nlohmann::json answer{{"failed", "not_built"}, {"reason", error.what()}};
    answers.write(answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));  // of a file's name
    return kCouldNot;
  };
  Suite known = suite();
  std::string ending = fs::path(file).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char letter) { return std::tolower(letter); });
  if (ending != ".py") {
    try {
      load_plugin(file, known);
    } catch (const std::exception& error) {
      return refuse(error);
    }
    return serve_cases(platform, known, answers);
  }
  const auto serve_rows = [&](auto* rows) {  // no exception may go through Python
    try {
      add_plugin_rows(file, rows, known);
    } catch (const std::exception& error) {
      return refuse(error);
    }
    try {
      return serve_cases(platform, known, answers);
    } catch (const std::exception& error) {
      fmt::print(stderr, "noisefloor: {}\n", error.what());
      return kCouldNot;
    }
  };
  try {
    const auto script = default_problem_folder().parent_path() / "plugin" / "python_plugin.py";
    return serve_python(file, script.string(), platform.description().index, serve_rows);
  } catch (const InvalidInput& error) {
    return refuse(error);
  }
}

struct WorkerArguments {
  std::string device, plugin;
};

int worker(const WorkerArguments& arguments) {
  const bool plugin = !arguments.plugin.empty();
  const auto code = plugin || arguments.device == "host" ? nullptr : watch_code_if_possible();
  const auto platform = open_platform(arguments.device);
  Answers answers;
  return plugin ? serve_plugin(*platform, arguments.plugin, answers)
                : serve_cases(*platform, suite(), answers, code.get());
}

}  // namespace

void add_worker_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "worker", "Time cases that another program asks for, in lines of JSON", worker);
  add_device_option(command, arguments.device);
  command.add_option("--plugin", arguments.plugin,
                     "Shared library or Python file whose rows it also has (docs/plugins.md)");
  command.footer(
      "`noisefloor ab` starts a worker of each build; `--plugin` of other commands starts one for each "
      "file.\nbench/measure/worker.h has the questions and answers.\nExit code: 0 the questions ended, 2 nobody read "
      "the answers, or the device cannot be opened.");
}

}  // namespace noisefloor
