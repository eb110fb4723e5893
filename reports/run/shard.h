// A part of a sweep, for machines that share the work: every N-th problem with all of its cases, so that rows that are
// compared come from one GPU. Which cases a part has depends on the selection alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reports/run/case_id.h"

namespace noisefloor {

struct Shard {
  int index = 1;  // 1 to count
  int count = 1;

  std::string text() const;  // "3/16"
  bool operator==(const Shard&) const = default;
};

inline constexpr int kMaxShards = 10'000;
Shard parse_shard(const std::string& text);  // "3/16"; throws std::runtime_error

// shard.json of a run folder: which part of which sweep it is, so that a merge knows what is missing.
struct ShardRecord {
  Shard shard;
  std::string selection;                 // hash of the names of all cases of the whole sweep, in order
  std::vector<CaseId> cases;             // this part's
  std::vector<std::size_t> places = {};  // of each of them among all; empty in a folder of an earlier version
};
// Problems are dealt out in turn, op by op and dtype by dtype, so that each shard has as many of each as any other, to
// one.
ShardRecord make_shard_record(const Shard& shard, const std::vector<CaseId>& all);

// Nothing where there is no shard.json. Throws std::runtime_error naming the file when it is anything else.
std::optional<ShardRecord> read_shard_record(const std::filesystem::path& folder);

// Marks the folder as this part (none: as no part). Throws std::runtime_error when it holds rows of anything else.
void claim_shard(const std::filesystem::path& folder, const std::optional<ShardRecord>& record, bool has_rows);

}  // namespace noisefloor
