#include "bench/sweep/earlier_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "kernels/core/fields.h"
#include "reports/run/json_file.h"

namespace noisefloor {
namespace {

constexpr std::size_t kOneIn = 20;  // rows that could be kept is measured all the same
// What a row's times depend on beside what runs. Cards of one name are told apart by column gpu_uuid, and not refused.
constexpr const char* kOfMachine[] = {"device", "memory_bytes", "sm_count", "power_limit_w", "driver"};

}  // namespace

EarlierRun::EarlierRun(const std::filesystem::path& folder, const nlohmann::ordered_json& facts)
    : next_(std::random_device()() % kOneIn) {
  try {
    run_ = read_run(folder);
    const auto before = read_json_object(folder / "env.json");
    for (const char* name : kOfMachine)
      if (before.contains(name) && facts.contains(name) && before.at(name) != facts.at(name))
        throw std::runtime_error(fmt::format("{}: is of {} {}, and this is {}", folder.string(), name,
                                             before.at(name).dump(), facts.at(name).dump()));
  } catch (const std::runtime_error& error) {
    throw InvalidInput(fmt::format("--reuse: {}", error.what()));
  }
  for (const SweepRow& row : run_.rows)
    if (row.status == Outcome::ok && !row.signature.empty()) rows_.emplace(row, EarlierRow{row, run_.samples_of(row)});
  if (rows_.empty())
    throw InvalidInput(fmt::format("--reuse: {}: no row has a signature; it is of an older program", folder.string()));
}

const EarlierRow* EarlierRun::find(const CaseId& id) const {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

bool EarlierRun::is_checked(const CaseId& id) {
  return kept_.try_emplace(id, kept_.size() % kOneIn == next_).first->second;
}

std::size_t EarlierRun::checked() const {
  return static_cast<std::size_t>(std::ranges::count_if(kept_, [](const auto& one) { return one.second; }));
}

RunFiles EarlierRun::checked_before() const {
  return checked_of(run_);
}

RunFiles EarlierRun::checked_now(const std::filesystem::path& now) const {
  return checked_of(read_run(now));
}

RunFiles EarlierRun::checked_of(const RunFiles& run) const {
  RunFiles checked = run;
  std::erase_if(checked.rows, [&](const SweepRow& row) {
    const auto found = kept_.find(row);
    return found == kept_.end() || !found->second;
  });
  return checked;
}

}  // namespace noisefloor
