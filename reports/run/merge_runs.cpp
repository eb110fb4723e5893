#include "reports/run/merge_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <set>
#include <stdexcept>
#include <tuple>

#include "reports/run/csv.h"
#include "reports/run/folder_lock.h"
#include "reports/run/json_file.h"
#include "reports/run/merge_parts.h"
#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

using MergeJson = nlohmann::ordered_json;

struct PlacedRow {
  std::size_t sweep;  // its number, where parts of several are merged
  std::size_t place;  // in it, before it was split
  const SweepRow* row;
  const RowSamples* samples;  // null: none
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
      if (!is_new) cannot_merge(part.folder, "{} is in {} too", row.name(), other->second->folder.string());
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

std::set<ProblemId> problems_of_several_gpus(const std::vector<PlacedRow>& rows) {
  std::map<ProblemId, std::string> gpus;
  std::set<ProblemId> torn;
  for (const PlacedRow& placed : rows)
    if (const std::string& uuid = placed.row->gpu_uuid;
        !uuid.empty() && gpus.emplace(*placed.row, uuid).first->second != uuid)
      torn.insert(*placed.row);
  return torn;
}

// Of an earlier run what the parts do not measure anew. A problem is replaced as a whole: a speedup is never of two
// dates. In old runs networks had other names.
MergePart rest_of(const fs::path& folder, const std::vector<MergePart>& parts) {
  MergePart rest = read_merge_part(folder, RunEnd::may_lack);
  require_one_device(rest, parts.front());
  std::set<ProblemId> anew;
  for (const MergePart& part : parts) anew.insert(part.rows.begin(), part.rows.end());
  std::erase_if(rest.rows, [&](const SweepRow& row) { return anew.contains(row); });
  // Words count where a run has no better: as published, of an earlier version, or those of a run before it.
  const auto is_told_anew = [&](const std::string& what) {
    return what.find_first_of("0123456789") == 0 || (rest.facts.contains(kShards) && what.starts_with("shard "));
  };
  for (const MergeJson& what : rest.facts.value("missing", MergeJson::array()))
    if (what.is_string() && (rest.cases.empty() || !is_told_anew(what))) rest.lacks.push_back(what);
  if (rest.rows.empty()) rest.lacks.clear(), rest.shards.clear();
  rest.shard.reset();
  return rest;
}

// The first part's ceilings with the medians of all of them.
CeilingTable median_ceilings(const std::vector<MergePart>& parts) {
  CeilingTable merged = parts.front().ceilings;
  for (Ceiling& ceiling : merged.rows)
    for (double Ceiling::*number : {&Ceiling::value, &Ceiling::sm_clock_mhz}) {
      std::vector<double> of_parts;
      for (const MergePart& part : parts) {
        const Ceiling* found = part.ceilings.find(ceiling.name);
        if (found == nullptr) cannot_merge(part.folder / "ceilings.csv", "has no '{}'", ceiling.name);
        if (found->*number > 0) of_parts.push_back(found->*number);  // a clock that is not known is 0
      }
      if (!of_parts.empty()) ceiling.*number = median(of_parts);
    }
  return merged;
}

void write_run(const fs::path& folder, const std::vector<MergePart>& parts, const std::vector<PlacedRow>& rows,
               const CeilingTable& ceilings, const MergeJson& environment) {
  std::set<std::string> others;
  for (const MergePart& part : parts)
    for (const std::string& name : other_columns(part.rows)) others.insert(name);
  const std::vector<std::string> other_names(others.begin(), others.end());
  std::string sweep = sweep_csv_header(other_names), samples;
  for (const PlacedRow& placed : rows) {
    sweep += to_csv(*placed.row, other_names);
    if (placed.samples != nullptr) samples += samples_line(*placed.row, *placed.samples) + "\n";
  }
  write_atomically(folder / kSamplesFile, samples);
  write_ceilings(folder / "ceilings.csv", ceilings);
  for (const MergePart& part : parts) {
    merge_network_problems(folder, part.folder, part.rows);
    merge_selected_cases(folder, part.folder);
  }
  write_atomically(folder / "env.json", environment.dump(2, ' ', false, MergeJson::error_handler_t::replace) + "\n");
  write_atomically(folder / "sweep.csv", sweep);
}

void require_free(const fs::path& out, bool replace) {
  if (!fs::exists(out) || (fs::is_directory(out) && fs::is_empty(out))) return;
  const bool merged = fs::exists(out / "env.json") && read_json_object(out / "env.json").contains("merged_from");
  if (!merged) cannot_merge(out, "is there already, and not from a merge; give another --out");
  if (!replace) cannot_merge(out, "is there already; give another --out, or --replace");
}

}  // namespace

MergeResult merge_runs(const std::vector<fs::path>& folders, const fs::path& out, const MergeOptions& options) {
  if (folders.empty()) throw std::runtime_error("no folders to merge");
  std::set<fs::path> distinct;
  std::vector<fs::path> sources = folders;
  if (!options.over.empty()) sources.push_back(options.over);
  for (const fs::path& folder : sources) {
    const fs::path real = fs::weakly_canonical(folder);
    if (!distinct.insert(real).second) cannot_merge(folder, "is given twice");
    const fs::path target = fs::weakly_canonical(out);
    if (real == target) cannot_merge(out, "is --out, and to be merged too");
    if (std::mismatch(target.begin(), target.end(), real.begin(), real.end()).first == target.end())
      cannot_merge(folder, "lies within --out, which --replace would remove");
  }
  require_free(out, options.replace);

  std::list<FolderLock> locks;
  std::vector<MergePart> parts;
  for (const fs::path& folder : folders) {
    if (fs::is_directory(folder)) locks.emplace_back(folder, FolderLock::Mode::reading);
    parts.push_back(read_merge_part(folder, options.partial ? RunEnd::may_lack : RunEnd::required));
  }
  require_one_origin(parts);
  MergeResult result;
  result.missing = missing_of(parts);
  if (!result.missing.empty() && !options.partial)
    throw failure("missing: {}; sweep again what is missing, or merge with --partial", fmt::join(result.missing, "; "));
  MergeJson environment = merged_environment(parts);
  const MergeJson of_parts = environment.value("of_parts", MergeJson::object());
  const CeilingTable ceilings = median_ceilings(parts);
  if (!options.over.empty()) {
    locks.emplace_back(options.over, FolderLock::Mode::reading);
    parts.insert(parts.begin(), rest_of(options.over, parts));  // networks stay in its order
    environment[kReusedFrom] = fs::absolute(options.over).lexically_normal().string();
    result.notes.push_back(fmt::format("{} rows are kept of {}", parts.front().rows.size(), options.over.string()));
    environment["over"] = true;  // not all of what was kept is known to be the same
    const MergeJson earlier = read_json_object(options.over / "env.json");  // knows libraries of kept rows alone
    for (const auto& [name, value] : earlier.items())
      if (value.is_string() && !of_parts.contains(name)) environment.emplace(name, MergeJson(value));
    result.missing = missing_of(parts);
  }
  if (!result.missing.empty()) environment["missing"] = result.missing;
  std::set<std::string> shards;
  for (const MergePart& part : parts) shards.insert(part.shards.begin(), part.shards.end());
  environment[kShards] = shards;
  const auto rows = place_rows(parts);
  result.rows = rows.size();
  for (const auto& [name, values] : of_parts.items())
    if (!name.starts_with("load"))
      result.notes.push_back(fmt::format("the shards differ in {}: {}", name, values.dump()));
  if (const auto torn = problems_of_several_gpus(rows); !torn.empty())
    result.notes.push_back(
        fmt::format("the rows of {} problems are of several GPUs, as of {}; column gpu_uuid has them", torn.size(),
                    torn.begin()->name()));
  if (rows.empty()) throw std::runtime_error("no rows to merge: the sweeps of these folders measured nothing");
  for (const PlacedRow& placed : rows) result.failed += is_failure(*placed.row);
  const fs::path target = follow_links(out);
  StagedFolder staging(target);
  write_run(staging.path(), parts, rows, ceilings, environment);
  if (fs::exists(target)) copy_files_of_others(target, staging.path());
  if (!staging.take_place()) cannot_merge(out, "is a mount point, and cannot be replaced; give a folder in it");
  return result;
}

}  // namespace noisefloor
