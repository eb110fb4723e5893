#include "reports/run/merge_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "reports/run/json_file.h"
#include "reports/run/network_problems.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

void require_same(const MergePart& part, const char* what, const std::string& value, const std::string& first) {
  if (value != first)
    cannot_merge(part.folder, fmt::format("is of {} '{}', the folders before it of '{}'", what, value, first));
}

// PyTorch's versions, and of what it brings; empty where it did not run.
std::string pytorch_of(const MergePart& part) {
  std::string versions;
  for (const char* name : {"pytorch", "pytorch_cuda", "pytorch_cudnn", "triton"})
    if (part.environment.contains(name))
      versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", name, part.text(name));
  return versions;
}

// Of parts that know it; a machine without a library's rows need not have the library.
void require_one_version(const std::vector<MergePart>& parts, const char* name) {
  std::string first;
  for (const MergePart& part : parts) {
    if (!part.environment.contains(name)) continue;
    const std::string version = part.text(name);
    if (first.empty()) first = version;
    require_same(part, name, version, first);
  }
}

}  // namespace

void cannot_merge(const fs::path& place, const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", place.string(), what));
}

std::string MergePart::text(const char* name) const {
  const auto found = environment.find(name);
  if (found == environment.end() || !found->is_string())
    cannot_merge(folder / "env.json", fmt::format("'{}' is missing or not a text", name));
  return found->get<std::string>();
}

MergePart read_merge_part(const fs::path& folder) {
  RunFiles run = read_run(folder);  // with all its checks
  MergePart part;
  part.folder = folder;
  part.rows = std::move(run.rows);
  part.samples = std::move(run.samples);
  (void)read_network_problems(folder, part.rows);  // of doubled lines the last would win
  part.ceilings = read_ceilings(folder / "ceilings.csv");
  part.environment = read_json_object(folder / "env.json");
  part.shard = read_shard_record(folder);
  for (const SweepRow& row : part.rows)
    if ((row.status == Outcome::ok || row.status == Outcome::throttled) && !part.samples.contains(row))
      cannot_merge(folder,
                   fmt::format("{} lacks the samples of {}", samples_file(folder).filename().string(), row.name()));
  return part;
}

void require_one_origin(const std::vector<MergePart>& parts) {
  const MergePart& first = parts.front();
  std::string first_pytorch;
  for (const MergePart& part : parts) {
    for (const char* name : {"device", "driver", "commit"}) require_same(part, name, part.text(name), first.text(name));
    if (&part != &first && !same_code(part.text("commit"), first.text("commit")))
      cannot_merge(part.folder, fmt::format("is of commit '{}', which names no code: the folders before it may be of "
                                            "other code; measure again with a newer program",
                                            part.text("commit")));
    require_same(part, "schema", part.environment.value("schema", nlohmann::ordered_json()).dump(),
                 first.environment.value("schema", nlohmann::ordered_json()).dump());
    require_same(part, "ceilings of device", part.ceilings.device, first.ceilings.device);
    require_same(part, "ceilings of driver", part.ceilings.driver, first.ceilings.driver);
    for (const SweepRow& row : part.rows)  // a blank one, which a run may have
      require_same(part, "rows of commit", row.commit, first.text("commit"));
    const std::string pytorch = pytorch_of(part);
    if (first_pytorch.empty()) first_pytorch = pytorch;
    if (!pytorch.empty()) require_same(part, "PyTorch", pytorch, first_pytorch);
  }
  for (const char* name : {"cublaslt", "cudnn"}) require_one_version(parts, name);
}

void require_one_build(const std::vector<MergePart>& parts) {
  // By these two builds of a commit differ.
  std::set<std::string> facts{"build_type",         "compiler",     "host_arch",
                              "cuda_architectures", "cuda_toolkit", "cuda_runtime"};
  for (const MergePart& part : parts)
    for (const auto& [name, value] : part.environment.items())
      if (name.starts_with("plugin ")) facts.insert(name);
  for (const std::string& name : facts) {
    const MergePart* first = nullptr;
    for (const MergePart& part : parts) {
      if (name.starts_with("plugin ") && !part.environment.contains(name)) continue;  // nor has it its rows
      if (first == nullptr) first = &part;
      const auto of = [&](const MergePart& one) { return one.environment.value(name, nlohmann::ordered_json()); };
      if (of(part) != of(*first))
        cannot_merge(part.folder, fmt::format("is of another build: '{}' is {}, in {} it is {}", name, of(part).dump(),
                                              first->folder.string(), of(*first).dump()));
    }
  }
}

std::vector<std::string> missing_of(const std::vector<MergePart>& parts) {
  std::vector<std::string> missing;
  if (std::none_of(parts.begin(), parts.end(), [](const MergePart& part) { return part.shard.has_value(); })) {
    for (const MergePart& part : parts) {
      const auto chosen = read_selected_cases(part.folder);
      if (const auto lacking = cases_without_row(chosen, part.rows); !lacking.empty())
        missing.push_back(fmt::format("{} of the {} cases of {}", lacking.size(), chosen.size(), part.folder.string()));
    }
    return missing;
  }
  struct Split {
    const MergePart* first;
    std::set<int> seen = {};
  };
  std::map<std::string, Split> splits;  // by the choice of cases
  for (const MergePart& part : parts) {
    if (!part.shard) cannot_merge(part.folder, "is not a shard of a split sweep, as others are");
    const ShardRecord& record = *part.shard;
    Split& split = splits.try_emplace(record.selection, Split{&part}).first->second;
    if (record.shard.count != split.first->shard->shard.count)
      cannot_merge(part.folder,
                   fmt::format("is shard {} of the sweep that {} is shard {} of: they were cut differently",
                               record.shard.text(), split.first->folder.string(), split.first->shard->shard.text()));
    if (!split.seen.insert(record.shard.index).second)
      cannot_merge(part.folder, fmt::format("shard {} is there twice", record.shard.text()));
    std::set<CaseId> ids;
    const std::set<CaseId> own(record.cases.begin(), record.cases.end());
    for (const SweepRow& row : part.rows) {
      if (!own.contains(row))
        cannot_merge(part.folder, fmt::format("holds {}, which is not of shard {}", row.name(), record.shard.text()));
      ids.insert(row);
    }
    const auto lacking = std::count_if(own.begin(), own.end(), [&](const CaseId& id) { return !ids.contains(id); });
    if (lacking > 0)
      missing.push_back(fmt::format("{} of the {} cases of shard {}{}", lacking, own.size(), record.shard.text(),
                                    splits.size() > 1 ? " (" + part.folder.string() + ")" : ""));
  }
  for (const auto& [selection, split] : splits) {
    std::vector<std::string> absent;
    const int count = split.first->shard->shard.count;
    for (int index = 1; index <= count; ++index)
      if (!split.seen.contains(index)) absent.push_back(std::to_string(index));
    if (!absent.empty())
      missing.insert(missing.begin(),
                     fmt::format("shard {} of {}{}", fmt::join(absent, ", "), count,
                                 splits.size() > 1 ? " (of the sweep of " + split.first->folder.string() + ")" : ""));
  }
  return missing;
}

}  // namespace noisefloor
