// Where a series of runs changed its level.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace noisefloor {

// One run's value in a series, in the order of time.
struct RunValue {
  double value = 0;             // microseconds: the median
  std::vector<double> samples;  // raw ones, in the order taken; empty: `value` stands for them
};

struct ChangePoint {
  std::size_t index = 0;  // the first run of the new level
  double before = 0;      // the levels: medians of the runs' values from the change before to the change after
  double after = 0;
  double p = 1;  // of the split, corrected
};

// A change is one only where all of these hold.
struct ChangeRule {
  double significance = 0.01;  // of corrected p
  double relative = 0.03;      // of the level before; with `microseconds`, the gate's rule
  double microseconds = 0.5;
  std::size_t series_compared = 1;  // series that are looked at together: p is multiplied by it (Bonferroni)
};

// Binary segmentation (A. J. Scott, M. Knott, 1974): of every way to cut the runs in two, that with the smallest p of a
// two-sided Mann-Whitney test on the raw samples of both sides, corrected by Holm over all of these ways; where it is
// significant, both sides likewise. Then cuts go, the smallest first, whose levels do not differ by the rule or whose
// two sides' samples, corrected by the number of possible cuts, are not significantly apart. All runs enter with the
// same number of samples, picked evenly: at most 50, and of more than 20 runs at most 1,000 in all, but 5 of each. The
// samples of one run share its clock and its heat, so that p alone calls too much a change: the rule on the size is
// what keeps that out.
std::vector<ChangePoint> change_points(std::span<const RunValue> runs, const ChangeRule& rule);

}  // namespace noisefloor
