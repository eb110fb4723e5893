#include "bench/pipeline/drift.h"

#include <cmath>

namespace noisefloor::pipeline {

double relative_l2(std::span<const float> found, std::span<const float> expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{found[i]} - double{expected[i]}, 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace noisefloor::pipeline
