#include "bench/measure/entrants.h"

#include <algorithm>
#include <utility>

#include "reports/run/statistics.h"

namespace noisefloor {

double Entrant::median_us() const {
  return median(us);
}

std::vector<Entrant*> best_of(std::span<Entrant> entrants, double factor, std::size_t fewest, std::size_t most) {
  std::vector<std::pair<double, Entrant*>> timed;
  for (Entrant& entrant : entrants) timed.emplace_back(entrant.median_us(), &entrant);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& l, const auto& r) { return l.first < r.first; });
  std::vector<Entrant*> best;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const auto& [us, entrant] = timed[i];
    if (entrant->stays || i < fewest || (i < most && us <= factor * timed.front().first)) best.push_back(entrant);
  }
  return best;
}

std::vector<Entrant*> sample_in_turns(std::vector<Entrant*> entrants, int turns, int samples, const Sampler& sampler) {
  for (int turn = 0; turn < turns; ++turn)
    std::erase_if(entrants, [&](Entrant* entrant) {
      const auto us = sampler(entrant->index, samples);
      if (us) entrant->us.insert(entrant->us.end(), us->begin(), us->end());
      return !us;
    });
  return entrants;
}

}  // namespace noisefloor
