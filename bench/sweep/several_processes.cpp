#include "bench/sweep/several_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <stdexcept>

#include "bench/sweep/command_line.h"
#include "bench/sweep/process_cases.h"
#include "bench/sweep/side_by_side.h"
#include "reports/run/folder_lock.h"
#include "reports/run/merge_runs.h"
#include "reports/run/process_folders.h"
#include "reports/run/run_files.h"
#include "reports/run/unfinished.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

// Another run here is a single sweep's, or of several GPUs, or of more processes, some of which would be left beside
// it.
void require_own(const fs::path& run, int processes) {
  if (fs::exists(run / "gpus.csv"))
    throw std::runtime_error(
        fmt::format("{}: holds the run folders of several GPUs; give another --out for --processes", run.string()));
  for (const auto& entry : fs::directory_iterator(run))
    if (const std::string name = entry.path().filename();
        is_run_file(name) && name != ".lock" && !fs::exists(run / process_folder_name(1)))
      throw std::runtime_error(
          fmt::format("{}: is the run folder of one process, or of none: it has {}; give another "
                      "--out for --processes",
                      run.string(), name));
  if (fs::exists(run / process_folder_name(processes + 1)))
    throw std::runtime_error(
        fmt::format("{}: has more than the {} processes of --processes; give another --out", run.string(), processes));
}

// All of them before the first begins: a fresh start that is cut short, and resumed without --fresh, would put old
// processes together with new ones.
void remove_earlier(const fs::path& run, int processes) {
  std::list<FolderLock> locks;
  std::vector<fs::path> earlier;
  for (int process = 1; process <= processes; ++process)
    if (const fs::path folder = run / process_folder_name(process); fs::is_directory(folder)) {
      locks.emplace_back(folder);
      earlier.push_back(folder);
    }
  fs::remove(run / "sweep.csv");
  std::ranges::for_each(earlier, remove_run_files);
}

// Where the first process was refused, with nothing measured: no run is left.
void leave_nothing(const fs::path& run) {
  std::error_code not_empty;
  if (fs::is_symlink(run) || fs::exists(run / process_folder_name(2))) return;
  note_finished(run);
  fs::remove(run / ".lock", not_empty);
  fs::remove(run, not_empty);
}

}  // namespace

int sweep_by_processes(int processes, const std::vector<std::string>& arguments, const fs::path& run,
                       const std::function<void()>& begun) {
  std::error_code error;
  fs::create_directories(follow_links(run), error);
  if (error) throw std::runtime_error(fmt::format("{}: cannot be made: {}", run.string(), error.message()));
  int worst = 0;
  std::vector<fs::path> folders;
  const FolderLock lock(run);
  require_own(run, processes);
  const std::vector<std::string> shared = without_options(arguments, {"--out", "--runs", "--processes"});
  const bool fresh = std::ranges::find(arguments, "--fresh") != arguments.end();
  if (!process_folders(run).empty()) {  // also so that a fresh start removes nothing for a command that is refused
    const auto chosen = chosen_cases(shared, run);
    if (const int* refused = std::get_if<int>(&chosen)) return *refused;
    if (!fresh) require_same_cases(run, processes, std::get<std::vector<CaseId>>(chosen));
  }
  begun();
  if (fresh) remove_earlier(run, processes);
  for (int process = 1; process <= processes; ++process) {
    std::vector<std::string> own = shared;
    folders.push_back(run / process_folder_name(process));
    own.insert(std::find(own.begin() + 1, own.end(), "sweep") + 1, {"--out", folders.back().string()});
    const SideBySideResult result =
        run_side_by_side({{process_folder_name(process), {std::move(own), {}, {}, "/proc/self/exe"}}}, stderr);
    if (result.interrupted_by != 0) end_as_told(result.interrupted_by, run);
    worst = std::max(worst, result.worst_exit_code());
    if (worst > 1) {
      fmt::print(stderr, "{}: {}; nothing was put together; the same command goes on, anew there if it is removed\n",
                 folders.back().string(), result.lanes.front().ending);
      if (!fs::exists(folders.front())) leave_nothing(run);
      return worst;
    }
  }
  MergeOptions options;
  options.pool = options.around = true;
  MergeResult merged;
  try {
    merged = merge_runs(folders, run, options);
  } catch (const std::runtime_error& unlike) {
    throw std::runtime_error(
        fmt::format("{}; a process-N folder that is removed is measured anew by the same command", unlike.what()));
  }
  for (const std::string& note : merged.notes) fmt::print(stderr, "note: {}\n", note);
  return worst;
}

}  // namespace noisefloor
