// The clock sampler in a build without CUDA: it cannot be built, and says so.
#include <limits>
#include <stdexcept>

#include "bench/platform/clocks.h"

namespace noisefloor {

struct ClockSampler::State {};

ClockSampler::ClockSampler(int, double) {
  throw std::runtime_error("no CUDA in this build: there is no SM clock to sample");
}
ClockSampler::~ClockSampler() = default;

int ClockSampler::enqueue(Stream) {
  throw std::runtime_error("no CUDA in this build: there is no SM clock to sample");
}
double ClockSampler::mhz(int) const {
  return std::numeric_limits<double>::quiet_NaN();
}
int ClockSampler::count() const {
  return 0;
}
void ClockSampler::clear() {}

}  // namespace noisefloor
