// Warm times of implementations that were verified, of the rows of a run and of what plans measured themselves: a plan
// takes them rather than measure a second time.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

class KnownTimes {
 public:
  struct Entry {
    std::optional<double> warm_us;
    std::string why_not;  // where there is no time: it cannot run here, or is wrong
  };

  // What a row says: its time, or why there is none. It is kept unless another attempt may have a time (`throttled`).
  Entry add(const SweepRow& row);
  void add(const CaseId& id, Entry entry) { entries_[id] = std::move(entry); }
  const Entry* find(const CaseId& id) const;  // null where nothing is known

 private:
  std::map<CaseId, Entry> entries_;
};

}  // namespace noisefloor
