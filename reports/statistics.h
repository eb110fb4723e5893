// Robust statistics of timing samples.
#pragma once

#include <span>
#include <vector>

namespace noisefloor {

double median(std::vector<double> samples);  // NaN of an empty set; the mean of the middle two of an even one
// Median absolute deviation from the median, unscaled.
double median_absolute_deviation(std::span<const double> samples);

struct Interval {
  double low;
  double high;
};
// Distribution-free 95 % confidence interval of the median from order statistics: ranks n/2 -+ 0.98 sqrt(n), the normal
// approximation of the binomial (exact enough from 10 samples on; the whole range below that).
Interval median_interval(std::vector<double> samples);

}  // namespace noisefloor
