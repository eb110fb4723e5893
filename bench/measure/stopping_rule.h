// When enough samples were taken: the median is known to 0.5 %, or time or patience is up.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace noisefloor {

struct StoppingRule {
  double relative_half_width = 0.005;  // of the median's 95 % confidence interval
  std::size_t minimum_samples = 20;
  std::size_t maximum_samples = 2000;
  double wall_seconds = 1.0;

  // A median of fewer samples says nothing of spread.
  static constexpr std::size_t kFewest = 5;

  // "converged", "max_samples" or "time_cap"; nothing while sampling should go on, and never before kFewest samples.
  std::optional<const char*> verdict(std::span<const double> samples, double elapsed_seconds) const;
};

}  // namespace noisefloor
