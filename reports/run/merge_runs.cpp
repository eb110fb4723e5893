#include "reports/run/merge_runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <set>
#include <stdexcept>
#include <tuple>

#include "reports/run/folder_lock.h"
#include "reports/run/json_file.h"
#include "reports/run/merge_crosscheck.h"
#include "reports/run/merge_environment.h"
#include "reports/run/merge_parts.h"
#include "reports/run/network_problems.h"
#include "reports/run/pool_parts.h"
#include "reports/run/process_folders.h"
#include "reports/run/run_files.h"
#include "reports/run/samples_file.h"
#include "reports/run/selected_cases.h"
#include "reports/statistics.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct PlacedRow {
  std::size_t sweep;  // its number, where parts of several are merged
  std::size_t place;  // in it, before it was split
  const SweepRow* row;
  const std::string* samples;  // null: none
};

std::vector<PlacedRow> place_rows(const std::vector<MergePart>& parts) {
  constexpr std::size_t kBehind = std::size_t{1} << 40;
  std::vector<PlacedRow> placed;
  std::map<CaseId, const MergePart*> owner;
  std::map<std::string, std::size_t> sweeps;
  for (const MergePart& part : parts) {
    const std::size_t sweep = sweeps.try_emplace(part.shard ? part.shard->selection : "", sweeps.size()).first->second;
    std::map<CaseId, std::size_t> own;
    if (part.shard)
      for (std::size_t i = 0; i < part.shard->places.size(); ++i) own[part.shard->cases[i]] = part.shard->places[i];
    for (const SweepRow& row : part.rows) {
      const auto [other, is_new] = owner.emplace(row, &part);
      if (!is_new)
        cannot_merge(part.folder, fmt::format("{} is in {} too", row.name(), other->second->folder.string()));
      const auto place = own.find(row);
      const auto samples = part.samples.find(row);
      placed.push_back({sweep, place != own.end() ? place->second : kBehind, &row,
                        samples == part.samples.end() ? nullptr : &samples->second});
    }
  }
  std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) {
    return std::tie(a.sweep, a.place) < std::tie(b.sweep, b.place);
  });
  return placed;
}

std::vector<PlacedRow> place_rows(const std::vector<PooledLine>& pooled) {
  std::vector<PlacedRow> placed;
  for (const PooledLine& line : pooled)
    placed.push_back({0, placed.size(), &line.row, line.samples.empty() ? nullptr : &line.samples});
  return placed;
}

std::set<ProblemId> problems_of_several_gpus(const std::vector<PlacedRow>& rows) {
  std::map<ProblemId, std::string> gpus;
  std::set<ProblemId> torn;
  for (const PlacedRow& placed : rows)
    if (const std::string& uuid = placed.row->gpu_uuid;
        !uuid.empty() && gpus.emplace(*placed.row, uuid).first->second != uuid)
      torn.insert(*placed.row);
  return torn;
}

// The first part's ceilings with the medians of all of them.
CeilingTable median_ceilings(const std::vector<MergePart>& parts) {
  CeilingTable merged = parts.front().ceilings;
  for (Ceiling& ceiling : merged.rows)
    for (double Ceiling::*number : {&Ceiling::value, &Ceiling::sm_clock_mhz}) {
      std::vector<double> of_parts;
      for (const MergePart& part : parts) {
        const Ceiling* found = part.ceilings.find(ceiling.name);
        if (found == nullptr) cannot_merge(part.folder / "ceilings.csv", fmt::format("has no '{}'", ceiling.name));
        if (found->*number > 0) of_parts.push_back(found->*number);  // a clock that is not known is 0
      }
      if (!of_parts.empty()) ceiling.*number = median(of_parts);
    }
  return merged;
}

void write_crosscheck(const fs::path& folder, const std::vector<MergePart>& parts, const std::vector<PlacedRow>& rows,
                      bool pool, MergeResult& result) {
  std::vector<fs::path> folders;
  for (const MergePart& part : parts) folders.push_back(part.folder);
  if (!pool) return join_crosschecks(folder, folders);
  std::map<CaseId, const SweepRow*> by_case;
  for (const PlacedRow& placed : rows) by_case[*placed.row] = placed.row;
  if (!pool_crosschecks(folder, folders, by_case))
    result.notes.emplace_back("crosscheck.csv is left out: not all runs have one");
}

void write_run(const fs::path& folder, const std::vector<MergePart>& parts, const std::vector<PlacedRow>& rows,
               bool pool, MergeResult& result) {
  std::set<std::string> others;
  for (const MergePart& part : parts)
    for (const std::string& name : other_columns(part.folder / "sweep.csv")) others.insert(name);
  const std::vector<std::string> other_names(others.begin(), others.end());
  std::string sweep = sweep_csv_header(other_names), samples;
  for (const PlacedRow& placed : rows) {
    sweep += to_csv(*placed.row, other_names);
    if (placed.samples != nullptr) samples += *placed.samples + "\n";
  }
  write_atomically(folder / kSamplesFile, samples);
  write_ceilings(folder / "ceilings.csv", median_ceilings(parts));
  for (const MergePart& part : parts) {
    merge_network_problems(folder, part.folder, part.rows);
    merge_selected_cases(folder, part.folder);
  }
  write_crosscheck(folder, parts, rows, pool, result);
  write_atomically(folder / "env.json",
                   merged_environment(parts).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  write_atomically(folder / "sweep.csv", sweep);
}

// What merging and reporting write is replaced; all else in a folder stays there.
void carry_over(const fs::path& old, const fs::path& target) {
  for (const auto& entry : fs::directory_iterator(old))
    if (!is_run_file(entry.path().filename().string())) fs::rename(entry.path(), target / entry.path().filename());
}

// Into the folder that holds the parts. A run has sweep.csv: a reader never meets half of one.
template <class Write>
void write_around(const fs::path& out, const Write& write) {
  fs::remove(out / "sweep.csv");
  for (const char* name : kRunFiles) remove_left_partials(out / name);
  for (const auto& entry : fs::directory_iterator(out))  // of an earlier one
    if (const auto name = entry.path().filename(); is_run_file(name.string()) && name != ".lock")
      fs::remove(entry.path());
  write(out);
}

// Beside its place, then renamed: a reader never meets half of it.
template <class Write>
void write_beside(const fs::path& out, const Write& write) {
  const fs::path target = follow_links(out);
  remove_left_partials(target);
  const fs::path partial = partial_of(target);
  const fs::path old = target.string() + fmt::format(".{}.old", getpid());
  std::error_code ignored;
  try {
    fs::create_directories(partial);
    write(partial);
    if (fs::exists(target)) fs::rename(target, old);
    fs::rename(partial, target);
    if (fs::exists(old)) carry_over(old, target);
  } catch (...) {
    fs::remove_all(partial, ignored);
    if (!fs::exists(target) && fs::exists(old)) fs::rename(old, target, ignored);
    throw;
  }
  fs::remove_all(old, ignored);
}

void require_free(const fs::path& out, bool replace) {
  if (!fs::exists(out) || (fs::is_directory(out) && fs::is_empty(out))) return;
  const bool merged = fs::exists(out / "env.json") && read_json_object(out / "env.json").contains("merged_from");
  if (!merged) cannot_merge(out, "is there already, and not from a merge; give another --out");
  if (!replace) cannot_merge(out, "is there already; give another --out, or --replace");
  require_no_processes(out);
}

}  // namespace

MergeResult merge_runs(const std::vector<fs::path>& folders, const fs::path& out, const MergeOptions& options) {
  if (folders.empty()) throw std::runtime_error("no folders to merge");
  if (options.pool && options.partial)
    throw std::runtime_error("--pool with --partial: leave one out; a row needs the samples of all runs");
  std::set<fs::path> distinct;
  for (const fs::path& folder : folders) {
    const fs::path real = fs::weakly_canonical(folder);
    if (!distinct.insert(real).second) cannot_merge(folder, "is given twice");
    const fs::path target = fs::weakly_canonical(out);
    if (real == target) cannot_merge(out, "is --out, and to be merged too");
    if (!options.around && std::mismatch(target.begin(), target.end(), real.begin(), real.end()).first == target.end())
      cannot_merge(folder, "lies within --out, which --replace would remove");
  }
  if (!options.around) require_free(out, options.replace);

  std::list<FolderLock> locks;
  std::vector<MergePart> parts;
  for (const fs::path& folder : folders) {
    if (fs::is_directory(folder)) locks.emplace_back(folder, FolderLock::Mode::reading);
    parts.push_back(read_merge_part(folder));
  }
  require_one_origin(parts);
  require_one_build(parts, options.pool);
  if (options.pool) require_whole_sweeps(parts);
  MergeResult result;
  const auto missing = missing_of(parts);
  if (!missing.empty() && !options.partial)
    throw std::runtime_error(fmt::format("missing: {}; sweep again what is missing{}", fmt::join(missing, "; "),
                                         options.pool ? "" : ", or merge with --partial"));
  result.missing = missing;
  const auto pooled = options.pool ? pool_parts(parts) : std::vector<PooledLine>();
  const auto rows = options.pool ? place_rows(pooled) : place_rows(parts);
  result.rows = rows.size();
  result.notes = differences_of(parts);
  if (const std::size_t rows_without = duels_left_out(parts, pooled); rows_without > 0)
    result.notes.push_back(fmt::format("{} rows have no duel: their runs did not let the same two meet", rows_without));
  if (const auto torn = problems_of_several_gpus(rows); !torn.empty())
    result.notes.push_back(
        fmt::format("the rows of {} problems are of several GPUs, as of {}; column gpu_uuid has them", torn.size(),
                    torn.begin()->name()));
  if (rows.empty()) throw std::runtime_error("no rows to merge: the sweeps of these folders measured nothing");
  for (const PlacedRow& placed : rows) result.failed += is_failure(*placed.row);

  const auto write = [&](const fs::path& folder) { write_run(folder, parts, rows, options.pool, result); };
  if (options.around)
    write_around(out, write);
  else
    write_beside(out, write);
  return result;
}

}  // namespace noisefloor
