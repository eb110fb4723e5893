#include "bench/measure/known_times.h"

namespace noisefloor {

void KnownTimes::add(const SweepRow& row) {
  if (row.status == Outcome::throttled || (row.status == Outcome::ok && !row.time_warm_us)) return;
  Entry entry{row.time_warm_us, {}};
  if (row.status != Outcome::ok) entry = {std::nullopt, std::string(to_string(row.status)) + ": " + row.reason};
  entries_[row] = std::move(entry);
}

const KnownTimes::Entry* KnownTimes::find(const CaseId& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace noisefloor
