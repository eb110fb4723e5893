#include "reports/run/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace noisefloor {
namespace {

std::vector<std::size_t> sizes_of(const Batches& batches) {
  if (!batches.sizes.empty()) return {batches.sizes.begin(), batches.sizes.end()};
  constexpr std::size_t kPieces = 8;
  const std::size_t count = batches.samples.size(), pieces = std::min(kPieces, count);
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < pieces; ++i) sizes.push_back(count * (i + 1) / pieces - count * i / pieces);
  return sizes;
}

}  // namespace

double median(std::vector<double> samples) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  if (samples.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(samples.begin(), middle)) / 2;
}

std::optional<double> median_of_known(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

bool at_one_edge(std::span<const double> edges_us) {
  const auto [least, most] = std::ranges::minmax_element(edges_us);
  return *most <= 1.1 * *least;
}

double median_absolute_deviation(std::span<const double> samples) {
  const double center = median({samples.begin(), samples.end()});
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (const double sample : samples) deviations.push_back(std::abs(sample - center));
  return median(std::move(deviations));
}

Interval median_interval(std::vector<double> samples, double deviations) {
  if (samples.empty()) return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  const double half_width = deviations / 2 * std::sqrt(n);  // a binomial(n, 1/2)'s deviation is sqrt(n) / 2
  const auto last = static_cast<std::ptrdiff_t>(samples.size()) - 1;
  const auto low = static_cast<std::ptrdiff_t>(std::floor(n / 2 - half_width));
  const auto high = static_cast<std::ptrdiff_t>(std::ceil(n / 2 + half_width));
  return {samples[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(low, 0, last))],
          samples[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(high, 0, last))]};
}

std::vector<double> medians_of(const Batches& batches) {
  std::vector<double> medians;
  auto begin = batches.samples.begin();
  for (const std::size_t size : sizes_of(batches)) {
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    medians.push_back(median({begin, end}));
    begin = end;
  }
  return medians;
}

double error_of_batch_mean(const Batches& batches) {
  const std::vector<double> values = medians_of(batches);
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() < 2) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1) / count) / mean;
}

}  // namespace noisefloor
