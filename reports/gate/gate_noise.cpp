#include "reports/gate/gate_noise.h"

#include <cmath>
#include <numbers>

namespace noisefloor {

namespace {

constexpr std::size_t kFewestPairs = 8;

double noise_of(double error, double freedom) {
  if (freedom == 0) return 0;
  // Student's t by its expansion about a normal's 3 (M. Abramowitz, I. A. Stegun, 26.7.5).
  const double t = 3 + (7.5 + 17.25 / freedom) / freedom;
  const double of_medians = std::sqrt(std::numbers::pi / 2);  // their standard error over a mean's
  return t * of_medians * error;
}

}  // namespace

double batch_noise(const Batches& a, const Batches& b, bool paired) {
  if (paired && a.sizes.size() == b.sizes.size() && a.sizes.size() >= kFewestPairs) {
    const BatchMean ratio = mean_of_ratios(a, b);
    return noise_of(ratio.error, ratio.freedom);
  }
  const BatchMean of_a = mean_of_batches(a), of_b = mean_of_batches(b);
  return noise_of(std::hypot(of_a.error, of_b.error), of_a.freedom + of_b.freedom);
}

}  // namespace noisefloor
