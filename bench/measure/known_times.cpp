#include "bench/measure/known_times.h"

namespace noisefloor {

KnownTimes::Entry KnownTimes::add(const SweepRow& row) {
  if (row.status == Outcome::ok) {
    if (!row.time_warm_us) return {std::nullopt, "no warm time was taken"};
    return entries_[row] = {row.time_warm_us, {}};
  }
  const Entry entry{std::nullopt, std::string(to_string(row.status)) + ": " + row.reason};
  if (row.status != Outcome::throttled) entries_[row] = entry;
  return entry;
}

const KnownTimes::Entry* KnownTimes::find(const CaseId& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace noisefloor
