// Robust statistics of timing samples.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace noisefloor {

double median(std::vector<double> samples);  // NaN of an empty set; the mean of the middle two of an even one
std::optional<double> median_of_known(std::vector<double> values);  // NaN: not known; nothing where none is
// Edges between kernels have two levels, a fifth apart: whether all of these are of the same. Not of an empty set.
bool at_one_edge(std::span<const double> edges_us);
// Median absolute deviation from the median, unscaled.
double median_absolute_deviation(std::span<const double> samples);

struct Interval {
  double low;
  double high;
};
// Distribution-free confidence interval of the median from order statistics: ranks n/2 -+ deviations sqrt(n)/2, the
// normal approximation of the binomial (exact enough from 10 samples on; the whole range below that). 1.96 standard
// deviations: 95 %.
Interval median_interval(std::vector<double> samples, double deviations = 1.96);

// Samples of one phase in any unit (microseconds, SM cycles), in the order taken, and how many are of each batch.
struct Batches {
  std::span<const double> samples;
  std::span<const std::size_t> sizes;  // empty: not recorded; they are then cut into 8 equal ones
};

std::vector<double> medians_of(const Batches& batches);  // one of each batch

// The relative standard error of the mean of the batches' medians; 0 of one batch alone. Where batches have one of two
// levels, the median of all samples lies in that which has a few more of them, and goes over to the other by chance;
// this mean does not.
double error_of_batch_mean(const Batches& batches);

}  // namespace noisefloor
