// The range profiler in a build without CUDA: it cannot be built, and says so.
#include "bench/counters/range_profiler.h"

namespace noisefloor {
namespace {
constexpr const char* kNoCuda = "no CUDA in this build: nothing can be counted";
}

struct RangeProfiler::State {};

RangeProfiler::RangeProfiler(std::span<const Metric>, CountingCosts*) {
  throw CountersUnavailable(CounterStatus::no_cupti, kNoCuda);
}
RangeProfiler::~RangeProfiler() = default;

std::size_t RangeProfiler::passes() const {
  return 0;
}

std::map<std::string, double> RangeProfiler::measure(const std::function<void(int)>&, const std::function<void()>&) {
  throw CountersUnavailable(CounterStatus::no_cupti, kNoCuda);
}

CounterProbe probe_counters() {
  return {CounterStatus::no_cupti, kNoCuda};
}

std::string cupti_version() {
  return {};
}

}  // namespace noisefloor
