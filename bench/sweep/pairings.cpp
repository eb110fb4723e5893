#include "bench/sweep/pairings.h"

namespace noisefloor {
namespace {

constexpr const char* kMixedPlan = "plan_fastest";  // of both sides

// Of those that have a time; null where there is none.
const Case* best_of(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& rows, bool baseline,
                    bool plugin) {
  const Case* best = nullptr;
  double fastest = 0;
  for (const Case& one : cases) {
    const auto row = rows.find(one.id());
    if (row == rows.end() || row->second.status != Outcome::ok || !row->second.time_warm_us) continue;
    if (one.implementation->is(Kind::baseline) != baseline || one.implementation->plugin.empty() == plugin) continue;
    if (one.entry->whole_networks && one.implementation->name == kMixedPlan) continue;
    if (best == nullptr || *row->second.time_warm_us < fastest) best = &one, fastest = *row->second.time_warm_us;
  }
  return best;
}

}  // namespace

std::vector<Pairing> pairings(const std::vector<Case>& cases, const std::map<CaseId, SweepRow>& rows) {
  const Case *const ours = best_of(cases, rows, false, false), *const theirs = best_of(cases, rows, true, false);
  const std::vector<Pairing> all = {{ours, theirs},
                                    {best_of(cases, rows, false, true), theirs, true, false},
                                    {ours, best_of(cases, rows, true, true), false, true}};
  std::vector<Pairing> both;
  for (const Pairing& one : all)
    if (one.ours != nullptr && one.theirs != nullptr) both.push_back(one);
  return both;
}

}  // namespace noisefloor
