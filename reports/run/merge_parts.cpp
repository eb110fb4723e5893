#include "reports/run/merge_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "reports/run/json_file.h"
#include "reports/run/network_problems.h"

namespace noisefloor {
namespace {

using MergeJson = nlohmann::ordered_json;

void require_same(const MergePart& part, const std::string& what, const std::string& value, const MergePart& first,
                  const std::string& of_first) {
  if (value != of_first)
    cannot_merge(part.folder, "is of {} {}, {} of {}", what, value, first.folder.string(), of_first);
}

// Whether a fact is of a library, which only those have whose rows needed it.
bool is_of_library(const std::string& name) {
  constexpr const char* kLibraries[] = {"cublaslt", "cudnn", "pytorch", "pytorch_cuda", "pytorch_cudnn", "triton"};
  return name.starts_with("plugin ") || name.starts_with("peer_") || std::ranges::count(kLibraries, name) > 0;
}

void require_one(const std::vector<MergePart>& parts, const std::string& name) {
  const auto of = [&](const MergePart& part) { return part.facts.value(name, MergeJson()).dump(); };
  const MergePart* first = nullptr;
  for (const MergePart& part : parts) {
    if (is_of_library(name) && !part.facts.contains(name)) continue;
    if (first == nullptr) first = &part;
    require_same(part, name, of(part), *first, of(*first));
  }
}

}  // namespace

std::string MergePart::text(const char* name) const {
  const auto found = facts.find(name);
  if (found == facts.end() || !found->is_string())
    cannot_merge(folder / "env.json", "'{}' is missing or not a text", name);
  return found->get<std::string>();
}

MergePart read_merge_part(const fs::path& folder, RunEnd end) {
  MergePart part{read_run(folder, end), {}, {}, {}, {}, {}, {}};  // with all its checks
  (void)read_network_problems(folder, part.rows);                 // of doubled lines the last would win
  part.ceilings = read_ceilings(folder / "ceilings.csv");
  part.facts = read_json_object(folder / "env.json");
  part.shard = read_shard_record(folder);
  part.cases = part.shard ? part.shard->cases : read_selected_cases(folder);
  if (part.shard) part.shards.insert(part.shard->selection + " " + part.shard->shard.text());
  const auto shards = part.facts.value(kShards, MergeJson::array());
  try {
    if (!shards.is_array()) throw std::invalid_argument(kShards);
    for (const MergeJson& one : shards) {
      const auto& text = one.get_ref<const std::string&>();
      (void)parse_shard(text.substr(text.find(' ') + 1));
      part.shards.insert(text);
    }
  } catch (const std::exception&) {
    cannot_merge(folder / "env.json", "'{}' is not a list of texts such as 'SELECTION 3/16'", kShards);
  }
  for (const SweepRow& row : part.rows)
    if ((row.status == Outcome::ok || row.status == Outcome::throttled) && !part.samples.contains(row))
      cannot_merge(folder, "{} lacks the samples of {}", samples_file(folder).filename().string(), row.name());
  return part;
}

void require_one_origin(const std::vector<MergePart>& parts) {
  const MergePart& first = parts.front();
  // By the last six two builds of a commit differ.
  for (const char* name : {"device", "driver", "commit", "schema", "build_type", "compiler", "host_arch",
                           "cuda_architectures", "cuda_toolkit", "cuda_runtime"})
    require_one(parts, name);
  for (const MergePart& part : parts) {
    for (const auto& [name, value] : part.facts.items())
      if (is_of_library(name)) require_one(parts, name);
    const std::string& commit = part.environment.commit;
    if (&part != &first && !same_code(commit, first.environment.commit))
      cannot_merge(part.folder,
                   "is of commit '{}', which names no code: the folders before it may be of other code; measure again "
                   "with a newer program",
                   commit);
    require_same(part, "ceilings of device", part.ceilings.device, first, first.ceilings.device);
    require_same(part, "ceilings of driver", part.ceilings.driver, first, first.ceilings.driver);
    if (part.facts.contains(kReusedFrom)) continue;  // its rows are of several commits
    for (const SweepRow& row : part.rows)            // a blank one, which a run may have
      require_same(part, "rows of commit", row.commit, first, first.environment.commit);
  }
}

void require_one_device(const MergePart& part, const MergePart& first) {
  for (const char* name : {"device", "memory_bytes", "sm_count", "power_limit_w", "driver", "build_type"}) {
    const auto of = [&](const MergePart& any) { return any.facts.value(name, MergeJson()).dump(); };
    require_same(part, name, of(part), first, of(first));
  }
}

std::vector<std::string> missing_of(const std::vector<MergePart>& parts) {
  struct Split {
    const MergePart* first;
    std::map<int, std::set<int>> there = {};  // by their number: an earlier run may have been cut otherwise
  };
  std::map<std::string, Split> splits;  // by the choice of cases
  std::set<CaseId> rows;
  std::vector<std::string> missing, cases, unsplit;
  for (const MergePart& part : parts) rows.insert(part.rows.begin(), part.rows.end());
  for (const MergePart& part : parts) {
    for (const std::string& one : part.shards) {
      const std::size_t space = one.find(' ');
      const Shard shard = parse_shard(one.substr(space + 1));
      Split& split = splits.try_emplace(one.substr(0, space), Split{&part}).first->second;
      const bool is_new = split.there[shard.count].insert(shard.index).second;
      if (!part.shard || !split.first->shard) continue;
      if (split.there.size() > 1)
        cannot_merge(part.folder, "is shard {} of the sweep that {} is shard {} of: they were cut differently",
                     shard.text(), split.first->folder.string(), split.first->shard->shard.text());
      if (!is_new) cannot_merge(part.folder, "shard {} is there twice", shard.text());
    }
    const std::set<CaseId> own(part.cases.begin(), part.cases.end());
    if (!part.shard && !part.facts.contains(kShards)) unsplit.push_back(part.folder.string());
    for (const SweepRow& row : part.rows)
      if (part.shard && !own.contains(row))
        cannot_merge(part.folder, "holds {}, which is not of shard {}", row.name(), part.shard->shard.text());
    if (const auto lacking = std::ranges::count_if(own, [&](const CaseId& id) { return !rows.contains(id); }))
      cases.push_back(fmt::format("{} of the {} cases of {}{}", lacking, own.size(),
                                  part.shard ? fmt::format("shard {}, ", part.shard->shard.text()) : "",
                                  part.folder.string()));
    cases.insert(cases.end(), part.lacks.begin(), part.lacks.end());
  }
  for (const auto& [selection, split] : splits) {
    if (std::ranges::any_of(split.there, [](const auto& cut) { return std::ssize(cut.second) == cut.first; })) continue;
    for (const auto& [count, there] : split.there) {
      std::vector<int> absent;
      for (int index = 1; index <= count; ++index)
        if (!there.contains(index)) absent.push_back(index);
      missing.push_back(fmt::format("shard {} of {}{}{}", fmt::join(absent, ", "), count,
                                    splits.size() > 1 ? " (of the sweep of " + split.first->folder.string() + ")" : "",
                                    unsplit.empty() || !split.first->shard
                                        ? ""
                                        : fmt::format(", and no shard.json in {}", fmt::join(unsplit, ", "))));
    }
  }
  missing.insert(missing.end(), cases.begin(), cases.end());
  return missing;
}

// The facts of each folder that a part was merged from, or its own.
static std::vector<MergeJson> facts_of(const MergePart& part) {
  MergeJson common = part.facts;
  const MergeJson of_parts = common.value("of_parts", MergeJson::object());
  const MergeJson folders = common.value("merged_from", MergeJson::array());
  common.erase("of_parts");
  std::vector<MergeJson> facts(std::max<std::size_t>(folders.size(), 1), common);
  for (std::size_t i = 0; i < facts.size(); ++i) {
    facts[i]["merged_from"] =
        folders.empty() ? MergeJson(fs::absolute(part.folder).lexically_normal().string()) : folders[i];
    for (const auto& [name, values] : of_parts.items())
      if (i < values.size()) facts[i][name] = values[i];
  }
  return facts;
}

MergeJson merged_environment(const std::vector<MergePart>& parts) {
  MergeJson merged = MergeJson::object(), hosts = MergeJson::array(), command_lines = hosts, folders = hosts;
  MergeJson of_parts = MergeJson::object();
  std::string latest;
  std::optional<double> latest_time;
  std::vector<MergeJson> all;
  for (const MergePart& part : parts) {
    for (MergeJson& facts : facts_of(part)) {
      folders.push_back(facts["merged_from"]);
      merged.update(facts);
      all.push_back(std::move(facts));
    }
    if (const std::string host = part.text("host"); std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(host);
    for (const auto& line : part.environment.command_lines) command_lines.push_back(line);
    const std::string text = part.text("time_utc");
    const auto time = parse_time(text);
    if (!time && !text.empty())
      cannot_merge(part.folder / "env.json", "'time_utc' is '{}', not a time with its zone", text);
    if (time && (!latest_time || *time > *latest_time)) latest = text, latest_time = time;
  }
  for (const auto& [name, value] : merged.items())
    for (const MergeJson& facts : all)
      if (facts.value(name, is_of_library(name) ? value : MergeJson()) != value) of_parts[name] = MergeJson::array();
  for (const char* name : {"host", "hosts", "command_lines", "time_utc", "merged_from", "missing", kShards, kReusedFrom,
                           kCheckSeed, kDoubted})
    of_parts.erase(name);  // kReusedFrom and kDoubted of one are the merged run's
  for (const char* of_part : {"missing", kShards, kCheckSeed}) merged.erase(of_part);
  for (auto& [name, values] : of_parts.items()) {
    merged.erase(name);
    for (const MergeJson& facts : all) values.push_back(facts.value(name, MergeJson()));
  }
  if (!of_parts.empty()) merged["of_parts"] = of_parts;
  merged["host"] = hosts.size() == 1 ? hosts.front() : MergeJson(fmt::format("{} hosts", hosts.size()));
  merged["hosts"] = hosts;
  if (command_lines.size() > kMaxCommandLines)
    command_lines.erase(command_lines.begin(), command_lines.end() - static_cast<std::ptrdiff_t>(kMaxCommandLines));
  merged["command_lines"] = command_lines;
  merged["time_utc"] = latest;
  merged["merged_from"] = folders;
  merged["schema"] = kRunSchema;  // rows and networks are written as today
  return merged;
}

}  // namespace noisefloor
