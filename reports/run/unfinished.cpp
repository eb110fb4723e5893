#include "reports/run/unfinished.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "reports/run/files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{1} << 22;  // Linux takes no longer command lines

fs::path note_of(const fs::path& run) {
  return run / ".unfinished";
}

}  // namespace

std::optional<fs::path> unfinished_run(const fs::path& folder, const std::string& command) {
  std::error_code error;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && !is_leftover(entry.path().filename().string())) runs.push_back(entry.path());
  if (runs.empty()) return std::nullopt;
  const fs::path newest = *std::ranges::max_element(runs);  // names are times
  try {
    if (read_whole_file(note_of(newest), kMostBytes) == command) return newest;
  } catch (const std::runtime_error&) {  // there is none, or it is none of ours
  }
  return std::nullopt;
}

void note_unfinished(const fs::path& run, const std::string& command) {
  write_atomically(note_of(run), command);
}

void note_finished(const fs::path& run) {
  std::error_code error;
  fs::remove(note_of(run), error);
}

bool is_unfinished(const fs::path& run) {
  std::error_code error;
  return fs::exists(note_of(run), error);
}

}  // namespace noisefloor
