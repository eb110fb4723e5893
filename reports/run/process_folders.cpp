#include "reports/run/process_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace noisefloor {
namespace {

constexpr std::string_view kProcess = "process-";

bool is_process_folder(const std::string& name) {
  const std::string_view rest = std::string_view(name).substr(std::min(name.size(), kProcess.size()));
  return name.starts_with(kProcess) && !rest.empty() &&
         std::ranges::all_of(rest, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string process_folder_name(int process) {
  return fmt::format("{}{}", kProcess, process);
}

std::vector<std::filesystem::path> process_folders(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run, error))
    if (entry.is_directory(error) && is_process_folder(entry.path().filename().string()))
      folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

void require_no_processes(const std::filesystem::path& run) {
  const auto folders = process_folders(run);
  if (folders.empty()) return;
  throw std::runtime_error(
      fmt::format("{}: is the run of several processes, whose folders ({}{}) are not of the run that would take its "
                  "place; move or remove them, or give another folder",
                  run.string(), folders.front().filename().string(), folders.size() > 1 ? " and others" : ""));
}

}  // namespace noisefloor
