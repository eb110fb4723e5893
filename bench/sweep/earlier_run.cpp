#include "bench/platform/refusal.h"
#include "bench/sweep/session.h"

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "bench/platform/fingerprint.h"
#include "reports/run/json_file.h"

namespace noisefloor {
namespace {

constexpr std::uint64_t kOneIn = 20;  // rows that could be kept is timed all the same
// What a row's times depend on beside what runs. Cards of one name are told apart by column gpu_uuid, and not refused.
constexpr const char* kOfMachine[] = {"device", "memory_bytes", "sm_count", "power_limit_w", "driver"};

}  // namespace

EarlierRun::EarlierRun(const fs::path& folder, const nlohmann::ordered_json& facts) {
  try {
    run_ = read_run(folder);
    const auto before = read_json_object(folder / "env.json");
    for (const char* name : kOfMachine)
      if (before.contains("of_parts") && before.at("of_parts").contains(name))
        throw failure("{}: its shards differ in {}", folder.string(), name);
      else if (before.contains(name) && facts.contains(name) && before.at(name) != facts.at(name))
        throw failure("{}: is of {} {}, and this is {}", folder.string(), name, before.at(name).dump(),
                      facts.at(name).dump());
  } catch (const std::runtime_error& error) {
    throw refusal("--reuse: {}", error.what());
  }
  for (const SweepRow& row : run_.rows)
    if (row.status == Outcome::ok && !row.signature.empty()) rows_.emplace(row, EarlierRow{row, run_.samples_of(row)});
  if (rows_.empty()) throw refusal("--reuse: {}: no row has a signature; it is of an older program", folder.string());
}

std::string EarlierRun::choose_checks(const fs::path& out, const std::string& seed) {
  seed_ = !seed.empty() ? seed : Fingerprint().add(fs::absolute(out).string() + run_.environment.time_utc).text();
  for (auto& [id, earlier] : rows_)
    for (const char* phase : {"cold", "warm"})
      if (is_check(id)) set_phase(earlier.row.phases, phase, {{phase, 0}});  // of no version: it is taken anew
  return seed_;
}

bool EarlierRun::is_check(const CaseId& id) const {
  return Fingerprint().add(seed_).add(id.name()).value() % kOneIn == 0;
}

const EarlierRow* EarlierRun::find(const CaseId& id) const {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

EarlierRun::Result EarlierRun::result(const fs::path& out) const {
  Result result{0, run_, read_run(out)};
  const std::vector<SweepRow> rows = std::exchange(result.now.rows, {});
  result.before.rows.clear();
  for (const SweepRow& row : rows) {
    const auto before = rows_.find(row);
    if (before == rows_.end() || before->second.row.signature != row.signature) continue;
    const bool kept = row.measured_utc == before->second.row.measured_utc;
    if (!is_check(row)) {
      result.kept += kept;
    } else if (row.status == Outcome::ok && !kept) {  // a disturbed one says nothing
      result.before.rows.push_back(before->second.row);
      result.now.rows.push_back(row);
    }
  }
  return result;
}

}  // namespace noisefloor
