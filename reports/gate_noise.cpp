#include "reports/gate_noise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "reports/statistics.h"

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

struct Error {
  double relative = 0;  // standard error of the run's median
  double freedom = 0;   // batches less one
};

Error median_error(const Batches& batches) {
  std::vector<double> medians;
  auto begin = batches.samples.begin();
  for (const std::size_t size : sizes_of(batches)) {
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    medians.push_back(median({begin, end}));
    begin = end;
  }
  if (medians.size() < 2) return {};
  const auto count = static_cast<double>(medians.size());
  double sum = 0, squares = 0;
  for (const double value : medians) sum += value;
  const double mean = sum / count;
  for (const double value : medians) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  return {std::sqrt(std::numbers::pi / 2) * deviation / std::sqrt(count) / mean, count - 1};
}

}  // namespace

double batch_noise(const Batches& a, const Batches& b) {
  const Error of_a = median_error(a), of_b = median_error(b);
  const double freedom = of_a.freedom + of_b.freedom;
  if (freedom == 0) return 0;
  // Student's t by its expansion about a normal's 3 (M. Abramowitz, I. A. Stegun, 26.7.5).
  const double t = 3 + (7.5 + 17.25 / freedom) / freedom;
  return t * std::hypot(of_a.relative, of_b.relative);
}

}  // namespace noisefloor
