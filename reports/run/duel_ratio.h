// What a duel (bench/measure/duel.h) says: a ratio of times with its interval.
#pragma once

#include <span>
#include <string>

namespace noisefloor {

// Of the rival's time over this one's: above 1 this one is faster. The interval (19 in 20) holds what two equal sides
// differ by as well.
struct Ratio {
  double value = 0, low = 0, high = 0;

  Ratio inverse() const { return {1 / value, 1 / high, 1 / low}; }  // as the rival sees it
};

// How often an interval holds what it is of: 19 times in 20, or all but once in 10,000.
enum class Confidence { usual, strict };

// From one ratio of each round, and the relative spread of the same duel in other processes. At least two rounds, each
// above 0.
Ratio ratio_of_rounds(std::span<const double> rounds, double equal_spread, Confidence confidence = Confidence::usual);

inline constexpr double kAlike = 0.03;

enum class DuelVerdict { faster, slower, equal, unresolved };
// Faster or slower where the interval leaves 1, equal where it holds 1 and lies within 3 %, else unresolved.
DuelVerdict verdict_of(const Ratio& ratio);
const char* to_string(DuelVerdict verdict);
std::string text_of(const Ratio& ratio);  // "1.021 (1.013 to 1.029) faster"

}  // namespace noisefloor
