#include "bench/measure/edge_latency.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

constexpr int kFirstLooks = 5;
constexpr double kLonger = 1.1;  // half of what lies between the levels

}  // namespace

EdgeLatency::EdgeLatency(Time time, Turn turn, Say say)
    : time_(std::move(time)), turn_(std::move(turn)), say_(std::move(say)) {
  for (int look = 0; look < kFirstLooks; ++look) {  // a first one may be long by the clock, or by a neighbour's slice
    const std::vector<double> edges = time_(kEdgeSamples);
    if (edges.empty()) return;
    shortest_us_ = look == 0 ? median(edges) : std::min(shortest_us_, median(edges));
  }
}

std::vector<double> EdgeLatency::settle(int samples) {
  std::vector<double> edges = time_(samples);
  if (edges.empty()) return edges;
  const auto are_long = [&] { return median(edges) > kLonger * shortest_us_; };
  if (!are_long()) {
    in_vain_ = false;
  } else if (turn_ && !in_vain_) {
    try {
      turn_();
    } catch (const std::exception& error) {  // there may be one for the next phase
      const std::string why = std::string("edges stay long: ") + error.what();
      if (say_ && why != std::exchange(said_, why)) say_(why);
      return edges;
    }
    edges = time_(samples);
    in_vain_ = are_long();
  }
  shortest_us_ = std::min(shortest_us_, median(edges));
  return edges;
}

}  // namespace noisefloor
