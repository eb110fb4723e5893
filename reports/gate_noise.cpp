#include "reports/gate_noise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reports/statistics.h"

namespace noisefloor {
namespace {

constexpr double kSigmas = 3;

std::vector<std::size_t> batches_of(const RowSamples& samples) {
  if (!samples.cold_batches.empty()) return samples.cold_batches;
  constexpr std::size_t kPieces = 8;
  const std::size_t pieces = std::min(kPieces, samples.cold_us.size());
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < pieces; ++i)
    sizes.push_back(samples.cold_us.size() * (i + 1) / pieces - samples.cold_us.size() * i / pieces);
  return sizes;
}

// Relative standard error of the run's median.
double median_error(const RowSamples& samples, std::span<const double> cold) {
  std::vector<double> medians;
  auto begin = cold.begin();
  for (const std::size_t size : batches_of(samples)) {
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    medians.push_back(median({begin, end}));
    begin = end;
  }
  if (medians.size() < 2) return 0;
  const auto count = static_cast<double>(medians.size());
  double sum = 0, squares = 0;
  for (const double value : medians) sum += value;
  const double mean = sum / count;
  for (const double value : medians) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  return std::sqrt(std::numbers::pi / 2) * deviation / std::sqrt(count) / mean;
}

// Estimated standard deviation of a run, from the range of runs.
double run_deviation(std::span<const double> medians) {
  // L. H. C. Tippett, 1925; for n = 2, 3, ... Above 10 the first 10 are as good.
  constexpr double kD2[] = {1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078};
  const std::size_t count = std::min(medians.size(), std::size(kD2) + 1);
  if (count < 2) return 0;
  const auto used = medians.first(count);
  const auto [low, high] = std::minmax_element(used.begin(), used.end());
  return (*high - *low) / kD2[count - 2];
}

}  // namespace

double batch_noise(const RowSamples& a, std::span<const double> cold_a, const RowSamples& b,
                   std::span<const double> cold_b) {
  return kSigmas * std::hypot(median_error(a, cold_a), median_error(b, cold_b));
}

double run_noise(std::span<const double> medians) {
  if (medians.size() < 2) return 0;
  return kSigmas * std::numbers::sqrt2 * run_deviation(medians) / *std::min_element(medians.begin(), medians.end());
}

std::optional<double> process_noise(const std::vector<std::vector<double>>& rows) {
  double squares = 0;
  std::size_t counted = 0;
  for (const auto& medians : rows) {
    // Of longer launches the offset is a small part, and power and heat make the rest.
    constexpr double kShort = 100;
    if (medians.size() < 2 || medians.front() > kShort) continue;
    squares += run_deviation(medians) * run_deviation(medians);
    ++counted;
  }
  if (counted == 0) return std::nullopt;
  return kSigmas * std::numbers::sqrt2 * std::sqrt(squares / static_cast<double>(counted));
}

std::optional<double> host_process_noise(const std::vector<std::vector<double>>& rows) {
  double squares = 0;
  std::size_t counted = 0;
  for (const auto& medians : rows) {
    if (medians.size() < 2) continue;
    squares += std::pow(run_deviation(medians) / *std::min_element(medians.begin(), medians.end()), 2);
    ++counted;
  }
  if (counted == 0) return std::nullopt;
  return kSigmas * std::numbers::sqrt2 * std::sqrt(squares / static_cast<double>(counted));
}

}  // namespace noisefloor
