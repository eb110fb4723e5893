#include "bench/measure/stopping_rule.h"

#include "reports/run/statistics.h"

namespace noisefloor {

std::optional<const char*> StoppingRule::verdict(std::span<const double> samples, double elapsed_seconds) const {
  if (samples.size() < kFewest) return std::nullopt;
  if (samples.size() >= minimum_samples) {
    const std::vector<double> copy(samples.begin(), samples.end());
    const double center = median(copy);
    const Interval interval = median_interval(copy);
    if ((interval.high - interval.low) / 2 <= relative_half_width * center) return "converged";
  }
  if (samples.size() >= maximum_samples) return "max_samples";
  if (elapsed_seconds >= wall_seconds) return "time_cap";
  return std::nullopt;
}

}  // namespace noisefloor
