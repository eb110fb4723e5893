#include "reports/run/unfinished.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "reports/run/files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

fs::path note_of(const fs::path& run) {
  return run / ".unfinished";
}

}  // namespace

std::optional<fs::path> unfinished_run(const fs::path& folder, const std::string& command) {
  std::error_code error;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error)) runs.push_back(entry.path());
  if (runs.empty()) return std::nullopt;
  const fs::path newest = *std::ranges::max_element(runs);  // names are times
  std::ifstream stream(note_of(newest));
  const std::string noted{std::istreambuf_iterator<char>(stream), {}};
  return noted == command ? std::optional(newest) : std::nullopt;
}

void note_unfinished(const fs::path& run, const std::string& command) {
  write_atomically(note_of(run), command);
}

void note_finished(const fs::path& run) {
  std::error_code error;
  fs::remove(note_of(run), error);
}

}  // namespace noisefloor
