#include "reports/run/merge_runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "reports/run/ceilings_csv.h"
#include "reports/run/folder_lock.h"
#include "reports/run/json_file.h"
#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"
#include "reports/run/samples_line.h"
#include "reports/run/selected_cases.h"
#include "reports/run/shard.h"
#include "reports/run/sweep_csv.h"
#include "reports/statistics.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Part {
  fs::path folder;
  std::vector<SweepRow> rows;
  std::map<CaseId, std::string> samples;  // its line
  CeilingTable ceilings;
  Json environment;
  std::optional<ShardRecord> shard;
};

[[noreturn]] void fail(const fs::path& place, const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", place.string(), what));
}

std::string text_of(const Part& part, const char* name) {
  const auto found = part.environment.find(name);
  if (found == part.environment.end() || !found->is_string())
    fail(part.folder / "env.json", fmt::format("'{}' is missing or not a text", name));
  return found->get<std::string>();
}

std::map<CaseId, std::string> read_sample_lines(const fs::path& file) {
  std::map<CaseId, std::string> lines;
  if (!fs::exists(file)) return lines;
  std::istringstream stream(read_whole_file(file));
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) lines.emplace(parse_samples_line(line).id, line);
  return lines;
}

Part read_part(const fs::path& folder) {
  RunFiles run = read_run(folder);  // with all its checks
  Part part;
  part.folder = folder;
  part.rows = std::move(run.rows);
  part.samples = read_sample_lines(folder / "samples.jsonl");
  part.ceilings = read_ceilings(folder / "ceilings.csv");
  part.environment = read_json_object(folder / "env.json");
  part.shard = read_shard_record(folder);
  for (const SweepRow& row : part.rows)
    if ((row.status == Outcome::ok || row.status == Outcome::throttled) && !part.samples.contains(row))
      fail(folder, fmt::format("samples.jsonl lacks the samples of {}", row.name()));
  return part;
}

void require_same(const Part& part, const char* what, const std::string& value, const std::string& first) {
  if (value != first)
    fail(part.folder, fmt::format("is of {} '{}', the folders before it of '{}'", what, value, first));
}

// PyTorch's versions, and of what it brings; empty where it did not run.
std::string pytorch_of(const Part& part) {
  std::string versions;
  for (const char* name : {"pytorch", "pytorch_cuda", "pytorch_cudnn", "triton"})
    if (part.environment.contains(name))
      versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", name, text_of(part, name));
  return versions;
}

// Of parts that know it; a machine without a library's rows need not have the library.
void require_one_version(const std::vector<Part>& parts, const char* name) {
  std::string first;
  for (const Part& part : parts) {
    if (!part.environment.contains(name)) continue;
    const std::string version = text_of(part, name);
    if (first.empty()) first = version;
    require_same(part, name, version, first);
  }
}

void require_one_origin(const std::vector<Part>& parts) {
  const Part& first = parts.front();
  std::string first_pytorch;
  for (const Part& part : parts) {
    for (const char* name : {"device", "driver", "commit"})
      require_same(part, name, text_of(part, name), text_of(first, name));
    require_same(part, "schema", part.environment.value("schema", Json()).dump(),
                 first.environment.value("schema", Json()).dump());
    require_same(part, "ceilings of device", part.ceilings.device, first.ceilings.device);
    require_same(part, "ceilings of driver", part.ceilings.driver, first.ceilings.driver);
    for (const SweepRow& row : part.rows) {
      require_same(part, "rows of device", row.device, text_of(first, "device"));
      require_same(part, "rows of commit", row.commit, text_of(first, "commit"));
    }
    const std::string pytorch = pytorch_of(part);
    if (first_pytorch.empty()) first_pytorch = pytorch;
    if (!pytorch.empty()) require_same(part, "PyTorch", pytorch, first_pytorch);
  }
  for (const char* name : {"cublaslt", "cudnn"}) require_one_version(parts, name);
}

// What a split sweep lacks, in words.
std::vector<std::string> missing_of(const std::vector<Part>& parts) {
  std::vector<std::string> missing;
  if (std::none_of(parts.begin(), parts.end(), [](const Part& part) { return part.shard.has_value(); })) {
    for (const Part& part : parts) {
      const auto chosen = read_selected_cases(part.folder);
      if (const auto lacking = cases_without_row(chosen, part.rows); !lacking.empty())
        missing.push_back(fmt::format("{} of the {} cases of {}", lacking.size(), chosen.size(), part.folder.string()));
    }
    return missing;
  }
  struct Split {
    const Part* first;
    std::set<int> seen = {};
  };
  std::map<std::string, Split> splits;  // by the choice of cases
  for (const Part& part : parts) {
    if (!part.shard) fail(part.folder, "is not a part of a split sweep, as others are");
    const ShardRecord& record = *part.shard;
    Split& split = splits.try_emplace(record.selection, Split{&part}).first->second;
    if (record.shard.count != split.first->shard->shard.count)
      fail(part.folder,
           fmt::format("is part {} of the sweep that {} is part {} of: they were cut differently", record.shard.text(),
                       split.first->folder.string(), split.first->shard->shard.text()));
    if (!split.seen.insert(record.shard.index).second)
      fail(part.folder, fmt::format("part {} is there twice", record.shard.text()));
    std::set<CaseId> ids;
    const std::set<CaseId> own(record.cases.begin(), record.cases.end());
    for (const SweepRow& row : part.rows) {
      if (!own.contains(row))
        fail(part.folder, fmt::format("holds {}, which is not of part {}", row.name(), record.shard.text()));
      ids.insert(row);
    }
    const auto lacking = std::count_if(own.begin(), own.end(), [&](const CaseId& id) { return !ids.contains(id); });
    if (lacking > 0)
      missing.push_back(fmt::format("{} of the {} cases of part {}{}", lacking, own.size(), record.shard.text(),
                                    splits.size() > 1 ? " (" + part.folder.string() + ")" : ""));
  }
  for (const auto& [selection, split] : splits) {
    std::vector<std::string> absent;
    const int count = split.first->shard->shard.count;
    for (int index = 1; index <= count; ++index)
      if (!split.seen.contains(index)) absent.push_back(std::to_string(index));
    if (!absent.empty())
      missing.insert(missing.begin(),
                     fmt::format("part {} of {}{}", fmt::join(absent, ", "), count,
                                 splits.size() > 1 ? " (of the sweep of " + split.first->folder.string() + ")" : ""));
  }
  return missing;
}

struct PlacedRow {
  std::size_t sweep;  // its number, where parts of several are merged
  std::size_t place;  // in it, before it was split
  const SweepRow* row;
  const std::string* samples;  // null: none
};

std::vector<PlacedRow> place_rows(const std::vector<Part>& parts) {
  constexpr std::size_t kBehind = std::size_t{1} << 40;
  std::vector<PlacedRow> placed;
  std::map<CaseId, const Part*> owner;
  std::map<std::string, std::size_t> sweeps;
  for (const Part& part : parts) {
    const std::size_t sweep = sweeps.try_emplace(part.shard ? part.shard->selection : "", sweeps.size()).first->second;
    std::map<CaseId, std::size_t> own;
    if (part.shard)
      for (std::size_t i = 0; i < part.shard->places.size(); ++i) own[part.shard->cases[i]] = part.shard->places[i];
    for (const SweepRow& row : part.rows) {
      const auto [other, is_new] = owner.emplace(row, &part);
      if (!is_new) fail(part.folder, fmt::format("{} is in {} too", row.name(), other->second->folder.string()));
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

// The first part's ceilings with the medians of all of them.
CeilingTable median_ceilings(const std::vector<Part>& parts) {
  CeilingTable merged = parts.front().ceilings;
  for (Ceiling& ceiling : merged.rows)
    for (double Ceiling::*number : {&Ceiling::value, &Ceiling::sm_clock_mhz}) {
      std::vector<double> of_parts;
      for (const Part& part : parts) {
        const Ceiling* found = part.ceilings.find(ceiling.name);
        if (found == nullptr) fail(part.folder / "ceilings.csv", fmt::format("has no '{}'", ceiling.name));
        if (found->*number > 0) of_parts.push_back(found->*number);  // a clock that is not known is 0
      }
      if (!of_parts.empty()) ceiling.*number = median(of_parts);
    }
  return merged;
}

// What belongs to one GPU and its machine, and may differ between parts: name in env.json, and in words.
constexpr std::pair<const char*, const char*> kOfOneMachine[] = {
    {"gpu_uuid", "GPUs"},
    {"power_limit_w", "power limits in W"},
    {"power_limit_default_w", "default power limits in W"},
    {"sm_clock_max_mhz", "highest SM clocks in MHz"},
    {"memory_clock_max_mhz", "highest memory clocks in MHz"},
    {"sm_clock_application_mhz", "SM clocks for applications in MHz"},
    {"memory_clock_application_mhz", "memory clocks for applications in MHz"},
    {"ecc", "ECC modes"},
    {"mig", "MIG modes"},
    {"pcie", "PCIe links"},
    {"cupti", "CUPTIs"},
    {"cpu", "CPUs"},
    {"cpu_cores", "numbers of CPU cores"},
    {"cpu_governor", "CPU governors"},
    {"load_average", "load averages"},
};

// Of each part, in their order; null where it does not know.
Json of_parts(const std::vector<Part>& parts, const char* name) {
  Json values = Json::array();
  for (const Part& part : parts) values.push_back(part.environment.value(name, Json()));
  return values;
}
bool differ(const Json& values) {
  return std::any_of(values.begin(), values.end(), [&](const Json& value) { return value != values.front(); });
}

std::vector<std::string> differences_of(const std::vector<Part>& parts) {
  std::vector<std::string> notes;
  for (const auto& [name, words] : kOfOneMachine)
    if (const Json values = of_parts(parts, name); differ(values) && std::string_view(name) != "load_average")
      notes.push_back(fmt::format("the parts are of different {}: {}", words, values.dump()));
  return notes;
}

Json merged_environment(const std::vector<Part>& parts) {
  Json merged = parts.front().environment;
  Json hosts = Json::array(), command_lines = Json::array(), folders = Json::array();
  std::string latest;
  for (const Part& part : parts) {
    if (const std::string host = text_of(part, "host"); std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(host);
    for (const Json& line : part.environment.value("command_lines", Json::array())) command_lines.push_back(line);
    folders.push_back(fs::absolute(part.folder).lexically_normal().string());
    latest = std::max(latest, text_of(part, "time_utc"));
  }
  for (const Part& part : parts)  // a part without PyTorch's rows knows no version
    for (const auto& [name, value] : part.environment.items())
      if (!merged.contains(name)) merged[name] = value;
  Json parted = Json::object();
  for (const auto& [name, words] : kOfOneMachine)
    if (Json values = of_parts(parts, name); differ(values)) {
      merged.erase(name);
      parted[name] = std::move(values);
    }
  if (!parted.empty()) merged["of_parts"] = parted;  // in the order of merged_from
  merged["host"] = hosts.size() == 1 ? hosts.front() : Json(fmt::format("{} hosts", hosts.size()));
  merged["hosts"] = hosts;
  if (command_lines.size() > kMaxCommandLines)
    command_lines.erase(command_lines.begin(), command_lines.end() - static_cast<std::ptrdiff_t>(kMaxCommandLines));
  merged["command_lines"] = command_lines;
  merged["time_utc"] = latest;
  merged["merged_from"] = folders;
  return merged;
}

void write_run(const fs::path& folder, const std::vector<Part>& parts, const std::vector<PlacedRow>& rows) {
  std::set<std::string> others;
  for (const Part& part : parts)
    for (const std::string& name : other_columns(part.folder / "sweep.csv")) others.insert(name);
  const std::vector<std::string> other_names(others.begin(), others.end());
  std::string sweep = sweep_csv_header(other_names), samples;
  for (const PlacedRow& placed : rows) {
    sweep += to_csv(*placed.row, other_names);
    if (placed.samples != nullptr) samples += *placed.samples + "\n";
  }
  write_atomically(folder / "samples.jsonl", samples);
  write_ceilings(folder / "ceilings.csv", median_ceilings(parts));
  for (const Part& part : parts) {
    merge_network_problems(folder, part.folder, part.rows);
    merge_selected_cases(folder, part.folder);
  }
  write_atomically(folder / "env.json",
                   merged_environment(parts).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  write_atomically(folder / "sweep.csv", sweep);
}

// What merging and reporting write is replaced; all else in a folder stays there.
void carry_over(const fs::path& old, const fs::path& target) {
  for (const auto& entry : fs::directory_iterator(old))
    if (!is_run_file(entry.path().filename().string())) fs::rename(entry.path(), target / entry.path().filename());
}

void require_free(const fs::path& out, bool replace) {
  if (!fs::exists(out) || (fs::is_directory(out) && fs::is_empty(out))) return;
  const bool merged = fs::exists(out / "env.json") && read_json_object(out / "env.json").contains("merged_from");
  if (!merged) fail(out, "is there already, and not from a merge; give another --out");
  if (!replace) fail(out, "is there already; give another --out, or --replace");
}

}  // namespace

MergeResult merge_runs(const std::vector<fs::path>& folders, const fs::path& out, const MergeOptions& options) {
  if (folders.empty()) throw std::runtime_error("no folders to merge");
  std::set<fs::path> distinct;
  for (const fs::path& folder : folders) {
    const fs::path real = fs::weakly_canonical(folder);
    if (!distinct.insert(real).second) fail(folder, "is given twice");
    const fs::path target = fs::weakly_canonical(out);
    if (real == target) fail(out, "is --out, and to be merged too");
    if (std::mismatch(target.begin(), target.end(), real.begin(), real.end()).first == target.end())
      fail(folder, "lies within --out, which --replace would remove");
  }
  require_free(out, options.replace);

  std::list<FolderLock> locks;
  std::vector<Part> parts;
  for (const fs::path& folder : folders) {
    if (fs::is_directory(folder)) locks.emplace_back(folder, FolderLock::Mode::reading);
    parts.push_back(read_part(folder));
  }
  require_one_origin(parts);
  MergeResult result;
  const auto missing = missing_of(parts);
  if (!missing.empty() && !options.partial)
    throw std::runtime_error(
        fmt::format("missing: {}; sweep again what is missing, or merge with --partial", fmt::join(missing, "; ")));
  result.missing = missing;
  const auto rows = place_rows(parts);
  result.rows = rows.size();
  result.notes = differences_of(parts);
  if (const auto torn = problems_of_several_gpus(rows); !torn.empty())
    result.notes.push_back(
        fmt::format("the rows of {} problems are of several GPUs, as of {}; column gpu_uuid has them", torn.size(),
                    torn.begin()->name()));
  if (rows.empty()) throw std::runtime_error("no rows to merge: the sweeps of these folders measured nothing");
  for (const PlacedRow& placed : rows) result.failed += is_failure(*placed.row);

  // Beside its place, then renamed: a reader never meets half of it.
  const fs::path target = out.has_filename() ? out : out.parent_path();
  remove_left_partials(target);
  const fs::path partial = partial_of(target);
  const fs::path old = target.string() + fmt::format(".{}.old", getpid());
  std::error_code ignored;
  try {
    fs::create_directories(partial);
    write_run(partial, parts, rows);
    if (fs::exists(target)) fs::rename(target, old);
    fs::rename(partial, target);
    if (fs::exists(old)) carry_over(old, target);
  } catch (...) {
    fs::remove_all(partial, ignored);
    if (!fs::exists(target) && fs::exists(old)) fs::rename(old, target, ignored);
    throw;
  }
  fs::remove_all(old, ignored);
  return result;
}

}  // namespace noisefloor
