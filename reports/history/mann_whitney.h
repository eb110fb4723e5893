// Whether two sets of samples differ, without a model of how they are distributed.
#pragma once

#include <span>
#include <vector>

namespace noisefloor {

// Two-sided p of the Mann-Whitney U test (H. B. Mann, D. R. Whitney, 1947): how often two sets drawn from one
// distribution have rank sums as far apart as these. Equal samples share the mean of their ranks. Up to 20 samples in
// both: exact, from every way to deal the ranks out, also with ties. Beyond: the normal approximation with the variance
// corrected for ties and a continuity correction of 1/2. 1 where either set is empty or all samples are equal.
double mann_whitney_p(std::span<const double> a, std::span<const double> b);

// Holm's step-down correction (S. Holm, 1979): adjusted p values, in the order given, such that rejecting those below
// alpha keeps the chance of even one false rejection among all below alpha.
std::vector<double> holm_adjusted(std::span<const double> p);

}  // namespace noisefloor
