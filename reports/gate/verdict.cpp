#include "reports/gate/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace noisefloor {

const char* to_string(GateVerdict verdict) {
  constexpr const char* kNames[] = {"regressed", "ambiguous", "improved", "pass"};
  return kNames[static_cast<std::size_t>(verdict)];
}

void judge(PhaseVerdict& verdict, const PhaseChange& change, Phase phase, const Conditions& conditions) {
  const bool slower = change.change > 0;
  const double fast = std::min(change.a_us, change.b_us);
  const double floor = phase == Phase::cold ? kGateMicroseconds : 0;
  // The faster side is the base. In cycles the floor is that of time at the baseline's clock.
  const auto visible = [&](double ratio, double noise) {
    return ratio - 1 > std::max(kGateChange, noise) && fast * (ratio - 1) > floor;
  };
  const double ratio = slower ? 1 + change.change : 1 / (1 + change.change);
  const double cycles = 1 + change.cycle_change.value_or(0);  // candidate over baseline
  const auto in_cycles = [&] {
    return fmt::format("{:+.1f} % in SM cycles (noise {:.1f} %)", 100 * (cycles - 1), 100 * change.cycle_noise);
  };
  if (!visible(ratio, 0)) {
    const bool hidden = conditions.at_power_cap && change.cycle_change && verdict.p_cycles < kGateAlpha &&
                        visible(std::max(cycles, 1 / cycles), change.cycle_noise);
    if (!hidden) return;
    verdict.verdict = GateVerdict::ambiguous;
    verdict.reason = in_cycles() + ", not in time, at the power cap";
    return;
  }
  std::size_t doubts = 0;
  const auto doubt = [&](const std::string& why) { verdict.reason += (doubts++ == 0 ? "" : "; ") + why; };
  verdict.within_noise = !visible(ratio, change.noise);
  if (verdict.within_noise) doubt(fmt::format("within the noise of {:.1f} %", 100 * change.noise));
  const double mean = slower ? 1 + change.mean_change : 1 / (1 + change.mean_change);
  if (!visible(mean, change.noise) && !verdict.within_noise)
    doubt(fmt::format("{:+.1f} % by the means of batches", 100 * change.mean_change));
  if (conditions.beside_others) doubt("measured beside other programs");
  if (conditions.places_a != conditions.places_b)
    doubt(fmt::format("places of its tensors: {} before, {} now; take a new baseline", conditions.places_a,
                      conditions.places_b));
  const auto sure = [&](double without, double noise) { return visible(without - change.edge_doubt, noise); };
  if (change.edge_doubt > 0 && !(sure(ratio, change.noise) && sure(mean, change.noise) &&
                                 (!change.cycle_change || sure(slower ? cycles : 1 / cycles, change.cycle_noise))))
    doubt("edges of two levels among its samples");
  if (!(verdict.p < kGateAlpha)) doubt(fmt::format("p = {:.2g}", verdict.p));
  if (change.cycle_change) {
    if (!visible(slower ? cycles : 1 / cycles, change.cycle_noise))
      doubt(in_cycles());
    else if (!(verdict.p_cycles < kGateAlpha))
      doubt(fmt::format("p = {:.2g} in SM cycles", verdict.p_cycles));
  }
  if (doubts > 0)
    verdict.verdict = GateVerdict::ambiguous;
  else
    verdict.verdict = slower ? GateVerdict::regressed : GateVerdict::improved;
  if (!change.cycle_change) doubt("by time alone: no SM clock");
  if (change.shifted) doubt("at the same edges");
}

}  // namespace noisefloor
