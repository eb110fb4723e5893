// Two builds of the program in turns (noisefloor ab): what its passes say of each case.
//
// A pass is a pair of new processes: what differs between two processes of one build (where memory lies) is a part of
// what the passes differ by.
#pragma once

#include <string>
#include <vector>

#include "reports/run/case_id.h"
#include "reports/run/duel_ratio.h"

namespace noisefloor {

// `wrong`: the new build's result, or it failed. `gone`: only the old build can run the case, or the new one was killed
// in every pass. `missing`: the old one cannot.
enum class BuildVerdict { slower, wrong, gone, unresolved, missing, faster, equal };
inline constexpr int kBuildVerdicts = 7;
const char* to_string(BuildVerdict verdict);

struct BuildDuel {
  CaseId id;
  std::vector<double> cold, warm;  // of each pass: the old build's time over the new one's
  std::string why_not;             // why there are no times
  BuildVerdict without_times = BuildVerdict::missing;
};

// Of one phase: faster or slower where the strict interval over the passes lies beyond half of `resolve` (relative):
// of hundreds of cases none may be so by chance. Equal where the usual interval lies within `resolve` of 1, unless it
// looks slower, else unresolved. At least two passes.
DuelVerdict verdict_of(const std::vector<double>& passes, double resolve);
// Slower where either phase is, else faster where either is and an unresolved one does not look slower, else what both
// say.
BuildVerdict verdict_of(const BuildDuel& duel, double resolve);

// The mean of the passes, of either phase, is slower than half of `resolve`: further passes may show it. Fewer
// than two do not.
bool looks_slower(const std::vector<double>& passes, double resolve);
bool looks_slower(const BuildDuel& duel, double resolve);

// Over the passes. What two passes differ by, the processes' own offsets among it, is measured: nothing is added.
Ratio ratio_of_passes(const std::vector<double>& passes, Confidence confidence = Confidence::usual);

}  // namespace noisefloor
