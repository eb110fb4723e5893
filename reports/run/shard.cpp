#include "reports/run/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "reports/run/csv.h"
#include "reports/run/json_file.h"

namespace noisefloor {
namespace {

constexpr const char* kShardFile = "shard.json";

// FNV-1a, 64 bits.
std::string hash_of(const std::vector<CaseId>& cases) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  };
  for (const CaseId& one : cases) add(one.name() + "\n");
  return fmt::format("{:016x}", hash);
}

}  // namespace

std::string Shard::text() const {
  return fmt::format("{}/{}", index, count);
}

Shard parse_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto number = [](const std::string& part) { return parse_number<int>(part).value_or(0); };
  const Shard shard{number(text.substr(0, slash)), slash == std::string::npos ? 0 : number(text.substr(slash + 1))};
  if (shard.count < 1 || shard.count > kMaxShards || shard.index < 1 || shard.index > shard.count)
    throw failure("--shard is '{}', not I/N with I from 1 to N and N up to {}", text, kMaxShards);
  return shard;
}

ShardRecord make_shard_record(const Shard& shard, const std::vector<CaseId>& all) {
  std::vector<const ProblemId*> problems;
  std::set<ProblemId> seen;
  for (const CaseId& one : all)
    if (seen.insert(one).second) problems.push_back(&one);
  std::stable_sort(problems.begin(), problems.end(),
                   [](const auto* a, const auto* b) { return std::tie(a->op, a->dtype) < std::tie(b->op, b->dtype); });
  seen.clear();
  for (auto i = static_cast<std::size_t>(shard.index - 1); i < problems.size();
       i += static_cast<std::size_t>(shard.count))
    seen.insert(*problems[i]);
  ShardRecord record{shard, hash_of(all), {}};
  for (std::size_t place = 0; place < all.size(); ++place) {
    if (!seen.contains(all[place])) continue;
    record.cases.push_back(all[place]);
    record.places.push_back(place);
  }
  return record;
}

std::optional<ShardRecord> read_shard_record(const fs::path& folder) {
  const auto file = folder / kShardFile;
  if (!fs::exists(file)) return std::nullopt;
  try {
    const auto json = read_json_object(file, kMostFileBytes);
    ShardRecord record;
    record.shard = parse_shard(json.at("shard").get<std::string>());
    record.selection = json.at("selection").get<std::string>();
    for (std::string name : json.at("cases").get<std::vector<std::string>>()) {
      // Version 0.1 wrote op|problem|dtype|variant.
      std::replace(name.begin(), name.end(), '|', '/');
      record.cases.push_back(CaseId::parse(name));
    }
    record.places = json.value("places", record.places);
    if (!record.places.empty() && record.places.size() != record.cases.size())
      throw std::runtime_error("has not as many places as cases");
    return record;
  } catch (const std::exception& error) {
    throw failure("{}: not the shard.json of a sweep: {}", file.string(), error.what());
  }
}

void claim_shard(const fs::path& folder, const std::optional<ShardRecord>& record, bool has_rows) {
  const auto known = read_shard_record(folder);
  const auto refuse = [&](const std::string& what) {
    throw failure("{}: {}; give another --out, or --fresh", folder.string(), what);
  };
  if (known && !record) refuse(fmt::format("is shard {} of a sweep that was split (--shard)", known->shard.text()));
  if (!record) return;
  if (known && known->shard != record->shard)
    refuse(fmt::format("is shard {}, this is {}", known->shard.text(), record->shard.text()));
  if (known && (known->selection != record->selection || known->cases != record->cases))
    refuse(fmt::format("is shard {} of another choice of cases", known->shard.text()));
  if (known) return;
  if (has_rows) refuse("holds rows of a sweep that was not split");
  std::vector<std::string> names;
  for (const CaseId& one : record->cases) names.push_back(one.name());
  const nlohmann::ordered_json json = {
      {"shard", record->shard.text()}, {"selection", record->selection}, {"cases", names}, {"places", record->places}};
  write_atomically(folder / kShardFile, json.dump(1) + "\n");
}

}  // namespace noisefloor
