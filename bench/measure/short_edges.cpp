#include "bench/measure/short_edges.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "reports/statistics.h"

namespace noisefloor {
namespace {

constexpr double kLonger = 1.1;  // half of what lies between the levels

}  // namespace

ShortEdges::ShortEdges(Time time, Turn turn) : time_(std::move(time)), turn_(std::move(turn)) {
  if (const std::vector<double> edges = time_(kEdgeSamples); !edges.empty()) shortest_us_ = median(edges);
}

std::vector<double> ShortEdges::settle(int samples) {
  std::vector<double> edges = time_(samples);
  if (edges.empty()) return edges;
  if (turn_ && median(edges) > kLonger * shortest_us_) {
    try {
      turn_();
      edges = time_(samples);
    } catch (const std::exception& error) {
      message_ = std::string("edges stay long: ") + error.what();
      turn_ = nullptr;
    }
  }
  shortest_us_ = std::min(shortest_us_, median(edges));
  return edges;
}

std::string ShortEdges::take_message() {
  return std::exchange(message_, {});
}

}  // namespace noisefloor
