// What speaks against a run as a baseline, though none of its rows broke.
#pragma once

#include <string>
#include <vector>

#include "reports/gate/gate.h"

namespace noisefloor {

// One sentence each: measured beside other programs, rows without a time because of that or of heat, all of it much
// faster than the baseline (which was then measured beside others). `against` may be null: there is no baseline yet.
std::vector<std::string> doubts_about(const RunFiles& candidate, const GateResult* against);

}  // namespace noisefloor
