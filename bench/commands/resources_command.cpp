// noisefloor resources: the kernels of a build against the recorded ones, with no GPU.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/platform/build_info.h"
#include "bench/platform/process_limits.h"
#include "reports/resources/kernel_usage.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

struct ResourcesArguments {
  std::string baseline, candidate;
  bool accept = false, new_rows = false;
};

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// What cuobjdump prints. It fails too on a program without device code, which then has no kernels; any other failure
// is none of the program. A build's Python environment has one too: scripts/noisefloor puts it on PATH.
std::string resource_usage_of(const fs::path& program) {
  const std::string command = "PATH=\"$PATH:$CUDA_HOME/bin:/usr/local/cuda/bin\" cuobjdump --dump-resource-usage " +
                              shell_quoted(program.string()) + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cuobjdump could not be started" + limit_behind(errno));
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), count);
  const int status = pclose(pipe);
  if (status == 0 || text.find("does not contain device code") != std::string::npos) return text;
  constexpr int kNotFound = 127;  // the shell's
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound)
    throw InvalidInput(
        "resources needs cuobjdump, which is not on PATH, in CUDA_HOME or /usr/local/cuda: install cuda-cuobjdump, or "
        "pip install nvidia-cuda-cuobjdump");
  while (text.ends_with('\n')) text.pop_back();
  throw failure("cuobjdump failed: {}", text.substr(text.rfind('\n') + 1));
}

KernelRecord built_kernels(const std::string& program) {
  const fs::path file = program.empty() ? fs::read_symlink("/proc/self/exe") : fs::path(program);
  if (!fs::is_regular_file(file)) throw refusal("{}: no such file", file.string());
  KernelRecord record{build_info().cuda_toolkit, {}};
  record.kernels = parse_resource_usage(resource_usage_of(file));
  if (record.toolkit.empty() && !record.kernels.empty())
    throw refusal(
        "{}: this program was built without CUDA and cannot tell of which version that one's kernels are; run a build "
        "with CUDA",
        file.string());
  if (record.kernels.empty())
    throw refusal("{}: no kernels in it (this build has {})", file.string(),
                  record.toolkit.empty() ? "no CUDA" : "CUDA " + record.toolkit);
  return record;
}

// A build for fewer would drop the kernels of the others from the baseline.
void require_all_architectures(const fs::path& file, const KernelRecord& recorded, const KernelRecord& built) {
  const auto wanted = architectures(recorded), here = architectures(built);
  if (std::ranges::includes(here, wanted)) return;
  throw refusal(
      "not accepted: {} has kernels for {}, this build for {}; build for all of them (NOISEFLOOR_CUDA_ARCHITECTURES), "
      "or remove the file to begin it anew",
      file.string(), fmt::join(wanted, ", "), fmt::join(here, ", "));
}

int judge_resources(const ResourcesArguments& arguments) {
  const fs::path file = fs::is_directory(arguments.baseline) ? fs::path(arguments.baseline) / "kernels.csv"
                                                             : fs::path(arguments.baseline);
  OutputFiles outputs;
  if (arguments.accept) outputs.add("--baseline", file);
  const KernelRecord built = built_kernels(arguments.candidate);
  if (fs::exists(file) || !arguments.accept) {
    const KernelRecord recorded = read_kernel_record(file);
    if (arguments.accept) require_all_architectures(file, recorded, built);
    // What is accepted replaces the baseline, also of another compiler.
    if (arguments.accept && recorded.toolkit != built.toolkit) {
      fmt::print("recorded with CUDA {}, built with {}\n", recorded.toolkit, built.toolkit);
    } else {
      const KernelChanges changes = kernel_changes(recorded, built);
      fmt::print("{}", kernel_changes_text(changes));
      if (!arguments.accept) {
        if (!changes.worse.empty()) return kNotSo;
        return !changes.gone.empty() || (!changes.added.empty() && !arguments.new_rows) ? kCouldNot : kDone;
      }
    }
  }
  outputs.write("--baseline", to_csv(built));
  outputs.commit();
  fmt::print("accepted: {} has {} kernels now\n", file.string(), built.kernels.size());
  return kDone;
}

}  // namespace

void add_resources_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "resources", "Judge registers, shared memory and spills of every built kernel by a baseline; no GPU",
      judge_resources);
  command.add_option("--baseline", arguments.baseline, "kernels.csv, or the folder that has it")->required();
  command.add_option("--candidate", arguments.candidate, "Program or library with kernels in it (default: this one)");
  command.add_flag("--new-rows", arguments.new_rows, "Name kernels that the baseline lacks, but judge without them");
  command.add_flag("--accept", arguments.accept, "Write the baseline anew, even if a kernel takes more");
  command.footer(
      "Exit code: 0 nothing takes more, 1 a kernel does, 2 it could not be compared (another CUDA version, kernels "
      "that "
      "are\ngone or new).");
}

}  // namespace noisefloor
