// Which rows of a problem fight a duel when all of its cases have run.
#pragma once

#include <map>
#include <vector>

#include "bench/measure/suite.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

struct Pairing {
  const Case *ours, *theirs;
  bool own_row = true, their_row = true;  // which of the two rows keep the ratio
};

// The fastest of ours, warm, against the fastest baseline; and the fastest plugin of either side against the other
// side's of these two. Only the plugin's row keeps that: a plugin changes no row of ours.
std::vector<Pairing> pairings(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& rows);

}  // namespace noisefloor
