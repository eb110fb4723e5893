#include "reports/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "reports/run/files.h"
#include "reports/run/folder_lock.h"
#include "reports/run/json_file.h"
#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"
#include "reports/run/run_folder.h"
#include "reports/run/shard.h"
#include "reports/run/statistics.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

std::runtime_error cannot_replace(const fs::path& path, const std::string& what) {
  return failure("{}: {}; the baseline is as it was", path.string(), what);
}

bool within(const fs::path& inner, const fs::path& outer) {
  const auto [end, at] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  (void)at;
  return end == outer.end();
}

void fill(const fs::path& staging, const fs::path& candidate) {
  const auto bring = [&](const char* name) {
    if (fs::is_regular_file(candidate / name)) fs::copy_file(candidate / name, staging / name);
  };
  std::ranges::for_each(kRunFiles, bring);
  std::ranges::for_each(kMadeFiles, bring);
}

// A mount point: file by file, from a folder within it. sweep.csv goes first and comes last, so that nobody reads a
// mixture.
void refill(const fs::path& baseline, const fs::path& candidate) {
  const StagedFolder staging(baseline / "incoming");
  fill(staging.path(), candidate);
  staging.write_through();
  fs::remove(baseline / "sweep.csv");
  remove_run_files(baseline);
  for (const auto& entry : fs::directory_iterator(staging.path()))
    if (entry.path().filename() != "sweep.csv") fs::rename(entry.path(), baseline / entry.path().filename());
  fs::rename(staging.path() / "sweep.csv", baseline / "sweep.csv");
  write_through(baseline);
}

// Something that is no run: files, but no sweep.csv among them. A killed refill() leaves its staging and a part of
// them.
bool is_foreign(const fs::path& folder) {
  if (fs::exists(folder / "sweep.csv")) return false;
  const bool begun = std::ranges::any_of(fs::directory_iterator(folder), is_partial, &fs::directory_entry::path);
  return std::ranges::any_of(fs::directory_iterator(folder), [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    const bool left = begun && (is_run_file(name) || is_partial(entry.path()));
    return !left && name != ".lock" && name != kNoiseFile && name != "lost+found";
  });
}

}  // namespace

std::vector<std::string> doubts_about(const RunFiles& candidate, const GateResult* against) {
  std::vector<std::string> doubts;
  if (const auto left = cases_without_row(read_selected_cases(candidate.folder), candidate.rows); !left.empty())
    doubts.push_back(fmt::format("its sweep was interrupted: {} of its cases have no row, {} first", left.size(),
                                 left.front().name()));
  else if (is_unfinished(candidate.folder))
    doubts.push_back("its sweep was interrupted");
  if (const auto record = read_shard_record(candidate.folder); record && record->shard.count > 1)
    doubts.push_back(fmt::format("it is shard {} of a sweep, and lacks the others", record->shard.text()));
  if (const auto file = candidate.folder / "env.json"; fs::exists(file) && read_json_object(file).contains("missing"))
    doubts.push_back("it was merged without all shards or cases of its sweep");
  if (const double load = load_of(candidate.rows); load >= kLoaded)
    doubts.push_back(fmt::format("it was measured beside other programs ({:.1f} of their threads could run)", load));
  if (const auto throttled = std::ranges::count(candidate.rows, Outcome::throttled, &SweepRow::status); throttled > 0)
    doubts.push_back(fmt::format("{} of its rows {} throttled", throttled, throttled == 1 ? "is" : "are"));
  if (against == nullptr || against->rows.empty()) return doubts;
  // Work on one op makes its rows faster, not the middle of all rows.
  constexpr double kMuchFaster = 0.8;
  std::vector<double> ratios;
  for (const GateRow& row : against->rows) ratios.push_back(1 + row.change.cold.change);
  if (const double ratio = median(ratios); ratio < kMuchFaster)
    doubts.push_back(fmt::format("half of its rows take less than {:.2f} times the baseline's time", ratio));
  return doubts;
}

void replace_baseline(const fs::path& baseline, const fs::path& candidate) {
  try {
    const fs::path target = fs::weakly_canonical(follow_links(baseline)), source = fs::canonical(candidate);
    if (target == source) throw cannot_replace(baseline, "is the candidate itself");
    if (within(target, source) || within(source, target))
      throw cannot_replace(baseline, "lies within the candidate, or around it");
    const bool replaces = fs::exists(target);
    if (replaces && !fs::is_directory(target)) throw cannot_replace(baseline, "is not a folder");
    if (replaces && is_foreign(target)) throw cannot_replace(baseline, "is not a run's folder, and not empty");
    const FolderLock reading(source, FolderLock::Mode::reading);
    std::optional<FolderLock> writing;
    if (replaces) writing.emplace(target, FolderLock::Mode::writing);
    StagedFolder staging(target);
    fill(staging.path(), source);
    if (replaces) copy_files_of_others(target, staging.path());
    if (!staging.take_place()) refill(target, source);
  } catch (const fs::filesystem_error& error) {
    const fs::path& where = error.path2().empty() ? error.path1() : error.path2();
    throw cannot_replace(baseline, fmt::format("{}: {}", where.string(), error.code().message()));
  }
}

}  // namespace noisefloor
