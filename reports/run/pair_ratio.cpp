#include "reports/run/pair_ratio.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

namespace noisefloor {
namespace {

// Of Student's t distribution, both tails together, by the degrees of freedom from 1; beyond the table its last, which
// is 5 % too wide at most (strict: 20 %).
struct Quantiles {
  double normal;
  double student[24];
};
constexpr Quantiles kUsual = {1.960,  // 5 %
                              {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
                               2.160,  2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064}};
constexpr Quantiles kStrict = {
    3.891,  // 0.01 %
    {6366.198, 99.992, 28.000, 15.544, 11.178, 9.082, 7.885, 7.120, 6.594, 6.211, 5.921, 5.694,
     5.513,    5.363,  5.239,  5.134,  5.044,  4.966, 4.897, 4.837, 4.784, 4.736, 4.693, 4.654}};

}  // namespace

Ratio ratio_of_rounds(std::span<const double> rounds, double pair_noise, Confidence confidence) {
  if (rounds.size() < 2) throw std::invalid_argument("a ratio's interval needs two rounds or more");
  const auto count = static_cast<double>(rounds.size());
  double mean = 0, squares = 0;
  for (const double round : rounds) mean += std::log(round) / count;
  for (const double round : rounds) squares += (std::log(round) - mean) * (std::log(round) - mean);
  const double error = std::sqrt(squares / (count - 1) / count);
  const Quantiles& quantiles = confidence == Confidence::usual ? kUsual : kStrict;
  const double student = quantiles.student[std::min(rounds.size() - 2, std::size(quantiles.student) - 1)];
  const double half = std::hypot(student * error, quantiles.normal * pair_noise);
  return {std::exp(mean), std::exp(mean - half), std::exp(mean + half)};
}

PairVerdict verdict_of(const Ratio& ratio) {
  if (ratio.low > 1) return PairVerdict::faster;
  if (ratio.high < 1) return PairVerdict::slower;
  return ratio.low >= 1 - kAlike && ratio.high <= 1 + kAlike ? PairVerdict::equal : PairVerdict::unresolved;
}

const char* to_string(PairVerdict verdict) {
  static constexpr const char* kNames[] = {"faster", "slower", "equal", "unresolved"};
  return kNames[static_cast<int>(verdict)];
}

std::string text_of(const Ratio& ratio) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f}) {}", ratio.value, ratio.low, ratio.high, to_string(verdict_of(ratio)));
}

const char* to_string(BuildVerdict verdict) {
  static constexpr const char* kNames[kBuildVerdicts] = {"slower", "wrong", "gone",      "unresolved", "missing",
                                                         "faster", "equal", "same_code", "neither"};
  return kNames[static_cast<int>(verdict)];
}

bool looks_slower(const std::vector<double>& passes, double resolve) {
  return passes.size() >= 2 && ratio_of_rounds(passes).value < 1 - resolve / 2;
}

PairVerdict verdict_of(const std::vector<double>& passes, double resolve) {
  const Ratio strict = ratio_of_rounds(passes, 0, Confidence::strict), usual = ratio_of_rounds(passes);
  if (strict.low > 1 + resolve / 2) return PairVerdict::faster;
  if (strict.high < 1 - resolve / 2) return PairVerdict::slower;
  const bool within = usual.low >= 1 - resolve && usual.high <= 1 + resolve;
  return within && !looks_slower(passes, resolve) ? PairVerdict::equal : PairVerdict::unresolved;
}

bool looks_slower(const BuildPair& pair, double resolve) {
  return looks_slower(pair.cold, resolve) || looks_slower(pair.warm, resolve);
}

BuildVerdict verdict_of(const BuildPair& pair, double resolve) {
  if (!pair.why_not.empty()) return pair.without_times;
  const PairVerdict cold = verdict_of(pair.cold, resolve), warm = verdict_of(pair.warm, resolve);
  const auto either = [&](PairVerdict verdict) { return cold == verdict || warm == verdict; };
  if (either(PairVerdict::slower)) return BuildVerdict::slower;
  const bool may_be_slower = either(PairVerdict::unresolved) && looks_slower(pair, resolve);
  if (either(PairVerdict::faster) && !may_be_slower) return BuildVerdict::faster;
  return either(PairVerdict::unresolved) ? BuildVerdict::unresolved : BuildVerdict::equal;
}

}  // namespace noisefloor
