// The verdict on one phase of one row.
#pragma once

#include <string>

#include "reports/gate/compare.h"

namespace noisefloor {

enum class GateVerdict { regressed, ambiguous, improved, pass };  // worst first
const char* to_string(GateVerdict verdict);

// What a difference must exceed to be seen at all, and how sure it must be.
inline constexpr double kGateChange = 0.015;
inline constexpr double kGateMicroseconds = 0.5;  // of cold times: what the timer resolves
inline constexpr double kGateAlpha = 0.01;        // for all rows and phases of a comparison together

// Two-sided Mann-Whitney on the samples and on their cycles, Holm-corrected.
struct PhaseVerdict {
  double p = 1, p_cycles = 1;
  GateVerdict verdict = GateVerdict::pass;
  std::string reason = {};    // of an ambiguous one: which condition does not hold
  bool within_noise = false;  // that condition does not
};

// Of either run.
struct Conditions {
  bool at_power_cap = false;        // a change of cycles alone is then ambiguous: the clock may have hidden it
  bool beside_others = false;       // so is any, where nobody measured by how much others disturb
  long places_a = 1, places_b = 1;  // of the tensors; so is any where they are not as many
};

// `change` with all of its noise.
void judge(PhaseVerdict& verdict, const PhaseChange& change, Phase phase, const Conditions& conditions);

}  // namespace noisefloor
