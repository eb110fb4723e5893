// What a paired comparison (bench/measure/pair.h) says: a ratio of times with its interval.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace noisefloor {

// Of the other's time over this one's: above 1 this one is faster. The interval (19 in 20) holds what two equal sides
// differ by as well.
struct Ratio {
  double value = 0, low = 0, high = 0;

  Ratio inverse() const { return {1 / value, 1 / high, 1 / low}; }  // as the other sees it
};

// How often an interval holds what it is of: 19 times in 20, or all but once in 10,000.
enum class Confidence { usual, strict };

// From one ratio of each round, and the relative noise of the same paired comparison in other processes: none where
// each round is a pair of processes, whose offsets are measured then. At least two rounds, each above 0.
Ratio ratio_of_rounds(std::span<const double> rounds, double pair_noise = 0, Confidence confidence = Confidence::usual);

inline constexpr double kAlike = 0.03;

enum class PairVerdict { faster, slower, equal, unresolved };
// Faster or slower where the interval leaves 1, equal where it holds 1 and lies within 3 %, else unresolved.
PairVerdict verdict_of(const Ratio& ratio);
const char* to_string(PairVerdict verdict);
std::string text_of(const Ratio& ratio);  // "1.021 (1.013 to 1.029) faster"

// Two builds of the program in turns (noisefloor ab): what its passes say of each case. A pass is a pair of new
// processes: what differs between two processes of one build (where memory lies) is a part of what the passes differ
// by.
//
// `wrong`: the new build's result, or it failed. `gone`: only the old build can run the case, or the new one was killed
// in every pass. `missing`: the old one cannot. `same_code`: both run the same, and nothing was timed.
// `neither`: both refuse the problem, for the same reason.
enum class BuildVerdict { slower, wrong, gone, unresolved, missing, faster, equal, same_code, neither };
inline constexpr int kBuildVerdicts = 9;
const char* to_string(BuildVerdict verdict);

struct BuildPair {
  std::string name;                // of the case
  std::vector<double> cold, warm;  // of each pass: the old build's time over the new one's
  std::string why_not;             // why there are no times
  BuildVerdict without_times = BuildVerdict::missing;
  std::vector<double> cycles = {};  // of the warm launches, as `warm`; none where a side does not say its clock
};

// Of one phase: faster or slower where the strict interval over the passes lies beyond half of `resolve` (relative):
// of hundreds of cases none may be so by chance. Equal where the usual interval lies within `resolve` of 1, unless it
// looks slower, else unresolved. At least two passes.
PairVerdict verdict_of(const std::vector<double>& passes, double resolve);
// Slower where either phase is, else faster where either is and an unresolved one does not look slower, else what both
// say.
BuildVerdict verdict_of(const BuildPair& pair, double resolve);

// The mean of the passes, of either phase, is slower than half of `resolve`: further passes may show it. Fewer
// than two do not.
bool looks_slower(const std::vector<double>& passes, double resolve);
bool looks_slower(const BuildPair& pair, double resolve);

}  // namespace noisefloor
