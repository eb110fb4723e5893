#include "reports/run/duel_ratio.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

namespace noisefloor {
namespace {

// Of Student's t distribution, both tails 5 %, by the degrees of freedom from 1; beyond the table its last, which is
// 5 % too wide at most.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
                               2.160,  2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064};
constexpr double kNormal = 1.96;

}  // namespace

Ratio ratio_of_rounds(std::span<const double> rounds, double equal_spread) {
  if (rounds.size() < 2) throw std::invalid_argument("a ratio's interval needs two rounds or more");
  const auto count = static_cast<double>(rounds.size());
  double mean = 0, squares = 0;
  for (const double round : rounds) mean += std::log(round) / count;
  for (const double round : rounds) squares += (std::log(round) - mean) * (std::log(round) - mean);
  const double error = std::sqrt(squares / (count - 1) / count);
  const double student = kStudent[std::min(rounds.size() - 2, std::size(kStudent) - 1)];
  const double half = std::hypot(student * error, kNormal * equal_spread);
  return {std::exp(mean), std::exp(mean - half), std::exp(mean + half)};
}

DuelVerdict verdict_of(const Ratio& ratio) {
  if (ratio.low > 1) return DuelVerdict::faster;
  if (ratio.high < 1) return DuelVerdict::slower;
  return ratio.low >= 1 - kAlike && ratio.high <= 1 + kAlike ? DuelVerdict::equal : DuelVerdict::unresolved;
}

const char* to_string(DuelVerdict verdict) {
  static constexpr const char* kNames[] = {"faster", "slower", "equal", "unresolved"};
  return kNames[static_cast<int>(verdict)];
}

std::string text_of(const Ratio& ratio) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f}) {}", ratio.value, ratio.low, ratio.high, to_string(verdict_of(ratio)));
}

}  // namespace noisefloor
