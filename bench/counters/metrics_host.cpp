// CUPTI's metric check in a build without CUDA.
#include "bench/counters/counter_status.h"
#include "bench/counters/metrics.h"

namespace noisefloor {

MetricCheck check_metrics(const std::string&, std::span<const Metric>) {
  throw CountersUnavailable(CounterStatus::no_cupti, "no CUDA in this build: metric names cannot be checked");
}

}  // namespace noisefloor
