// noisefloor capture: a PyTorch program's problems. Python does it (python/noisefloor/__main__.py); this finds
// it.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "bench/commands/commands.h"
#include "bench/platform/child_process.h"

namespace noisefloor {
namespace {

struct CaptureArguments {
  std::string out, network;
  std::vector<std::string> program;
};

// As __main__.py has it: python, python3, python3.12, and not python_pipe.py.
bool is_interpreter(const std::string& program) {
  const std::string name = fs::path(program).filename().string(), python = "python";
  return name.starts_with(python) && name.find_first_not_of("0123456789.", python.size()) == std::string::npos;
}

// This process becomes Python: the exit code is the program's.
int become_python(const CaptureArguments& arguments) {
  std::vector<std::string> program = arguments.program;
  std::string python = "python3";
  if (is_interpreter(program.front())) {
    python = program.front();
    program.erase(program.begin());
  }
  if (program.empty()) throw InvalidInput("name a script behind " + python);
  if (program.front() != "-m" && !fs::is_regular_file(program.front()))
    throw InvalidInput(program.front() + ": no such script");
  std::error_code error;
  const auto build = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path() / "python";
  if (fs::is_directory(build / "noisefloor", error)) {
    const char* path = std::getenv("PYTHONPATH");
    setenv("PYTHONPATH", (build.string() + (path != nullptr ? ":" + std::string(path) : "")).c_str(), 1);
  }
  std::vector<std::string> words{python, "-m", "noisefloor", "capture"};
  if (!arguments.out.empty()) words.insert(words.end(), {"--out", arguments.out});
  if (!arguments.network.empty()) words.insert(words.end(), {"--network", arguments.network});
  words.emplace_back("--");
  words.insert(words.end(), program.begin(), program.end());
  execvp(python.c_str(), pointers_to(words).data());
  throw refusal("{}: {}", python, std::generic_category().message(errno));
}

}  // namespace

void add_capture_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "capture", "Run a PyTorch program, and say which problems its calls are", become_python);
  command.add_option("program", arguments.program, "After --: python, a script and its arguments")->required();
  command.add_option("--out", arguments.out, "New folder for problem files, which sweep --problems takes");
  command.add_option("--network", arguments.network, "The network's name in them (default: the script's)");
}

}  // namespace noisefloor
