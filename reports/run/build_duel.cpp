#include "reports/run/build_duel.h"

namespace noisefloor {

Ratio ratio_of_passes(const std::vector<double>& passes, Confidence confidence) {
  return ratio_of_rounds(passes, 0, confidence);
}

const char* to_string(BuildVerdict verdict) {
  static constexpr const char* kNames[kBuildVerdicts] = {"slower",  "wrong",  "gone", "unresolved",
                                                         "missing", "faster", "equal"};
  return kNames[static_cast<int>(verdict)];
}

bool looks_slower(const std::vector<double>& passes, double resolve) {
  return passes.size() >= 2 && ratio_of_passes(passes).value < 1 - resolve / 2;
}

DuelVerdict verdict_of(const std::vector<double>& passes, double resolve) {
  const Ratio strict = ratio_of_passes(passes, Confidence::strict), usual = ratio_of_passes(passes);
  if (strict.low > 1 + resolve / 2) return DuelVerdict::faster;
  if (strict.high < 1 - resolve / 2) return DuelVerdict::slower;
  const bool within = usual.low >= 1 - resolve && usual.high <= 1 + resolve;
  return within && !looks_slower(passes, resolve) ? DuelVerdict::equal : DuelVerdict::unresolved;
}

bool looks_slower(const BuildDuel& duel, double resolve) {
  return looks_slower(duel.cold, resolve) || looks_slower(duel.warm, resolve);
}

BuildVerdict verdict_of(const BuildDuel& duel, double resolve) {
  if (!duel.why_not.empty()) return duel.without_times;
  const DuelVerdict cold = verdict_of(duel.cold, resolve), warm = verdict_of(duel.warm, resolve);
  const auto either = [&](DuelVerdict verdict) { return cold == verdict || warm == verdict; };
  if (either(DuelVerdict::slower)) return BuildVerdict::slower;
  const bool may_be_slower = either(DuelVerdict::unresolved) && looks_slower(duel, resolve);
  if (either(DuelVerdict::faster) && !may_be_slower) return BuildVerdict::faster;
  return either(DuelVerdict::unresolved) ? BuildVerdict::unresolved : BuildVerdict::equal;
}

}  // namespace noisefloor
