#include "reports/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace noisefloor {

double median(std::vector<double> samples) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  if (samples.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(samples.begin(), middle)) / 2;
}

double median_absolute_deviation(std::span<const double> samples) {
  const double center = median({samples.begin(), samples.end()});
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (const double sample : samples) deviations.push_back(std::abs(sample - center));
  return median(std::move(deviations));
}

Interval median_interval(std::vector<double> samples) {
  if (samples.empty()) return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  // 1.96 standard deviations of a binomial(n, 1/2) are 0.98 sqrt(n).
  const double half_width = 0.98 * std::sqrt(n);
  const auto last = static_cast<std::ptrdiff_t>(samples.size()) - 1;
  const auto low = static_cast<std::ptrdiff_t>(std::floor(n / 2 - half_width));
  const auto high = static_cast<std::ptrdiff_t>(std::ceil(n / 2 + half_width));
  return {samples[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(low, 0, last))],
          samples[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(high, 0, last))]};
}

}  // namespace noisefloor
