// The folders that are to be merged: read whole, held against each other, and what their env.json have in common.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reports/run/ceilings_csv.h"
#include "reports/run/run_files.h"
#include "reports/run/shard.h"

namespace noisefloor {

struct MergePart : RunFiles {
  CeilingTable ceilings;
  nlohmann::ordered_json facts;  // env.json
  std::optional<ShardRecord> shard;
  std::vector<CaseId> cases;       // that were chosen for it
  std::set<std::string> shards;    // that it is, or has: "SELECTION 3/16"
  std::vector<std::string> lacks;  // in words, what neither shards nor cases tell of an earlier run

  std::string text(const char* name) const;  // of env.json; throws where it is not there
};

// Each throws std::runtime_error naming folder and case.
template <class... Words>
[[noreturn]] void cannot_merge(const fs::path& place, fmt::format_string<Words...> form, Words&&... words) {
  throw failure("{}: {}", place.string(), fmt::format(form, std::forward<Words>(words)...));
}
// Every timed row must have its samples.
MergePart read_merge_part(const fs::path& folder, RunEnd end);
// One device, driver and build of one commit, one version of each library, and one file of each plugin.
void require_one_origin(const std::vector<MergePart>& parts);
// One kind of device, driver and build.
void require_one_device(const MergePart& part, const MergePart& first);
// What all of them together lack, in words: shards of split sweeps, and cases. Throws where shards are of different
// cuts, or hold what is not theirs.
std::vector<std::string> missing_of(const std::vector<MergePart>& parts);
// env.json: what all parts say that know it. What differs stands in `of_parts`, a list in the order of `merged_from`,
// null where a part does not know it.
nlohmann::ordered_json merged_environment(const std::vector<MergePart>& parts);

}  // namespace noisefloor
