// What every search of the harness for the fastest of many does: few times of all, more of those near the best.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace noisefloor {

// One way to launch what is searched.
struct Entrant {
  std::size_t index;
  std::vector<double> us;  // its samples so far
  bool stays = false;      // in every cut: the others are compared with it
  double median_us() const;
};

// At most `most` of those within `factor` of the best median, but no fewer than `fewest`, and those that stay; best
// first.
std::vector<Entrant*> best_of(std::span<Entrant> entrants, double factor, std::size_t fewest, std::size_t most);

// Samples of a way to launch; none: it cannot be launched.
using Sampler = std::function<std::optional<std::vector<double>>(std::size_t index, int samples)>;

// Adds samples to each in turns, so that a clock that drifts favours none. Returns those that were launched each time.
std::vector<Entrant*> sample_in_turns(std::vector<Entrant*> entrants, int turns, int samples, const Sampler& sampler);

}  // namespace noisefloor
