#include "bench/measure/platform_timing.h"

#include <chrono>

#include "bench/platform/run_queue.h"

namespace noisefloor {

PlatformTiming::PlatformTiming(Platform& platform, Launches launches, Ranges resident, Options options)
    : platform_(&platform), launches_(std::move(launches)), resident_(resident), options_(std::move(options)) {}

double PlatformTiming::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<double> PlatformTiming::cold(int samples) {
  if (options_.before_batch) options_.before_batch();
  return platform_->time_cold(launches_.cold, samples, resident_);
}

// Each batch has a graph of its own, beside those of the batches before it.
std::vector<double> PlatformTiming::warm(int samples, int repeats, Edges edges) {
  if (options_.before_batch) options_.before_batch();
  if (edges != edges_of_graphs_) graphs_.clear();
  edges_of_graphs_ = edges;
  return platform_->time_warm(launches_.warm(edges, repeats), samples, repeats, &graphs_);
}

std::optional<ClockReading> PlatformTiming::clock() {
  if (options_.clocks == nullptr) return std::nullopt;
  ClockSampler& sampler = options_.clocks->sampler;
  sampler.clear();
  ClockReading reading;
  const int index = sampler.enqueue(platform_->context().stream);
  platform_->synchronize();
  reading.mhz = sampler.mhz(index);
  return reading;
}

std::optional<std::uint64_t> PlatformTiming::clock_event_reasons() {
  if (options_.clocks == nullptr) return std::nullopt;
  return options_.clocks->monitor.clock_event_reasons();
}

std::optional<double> PlatformTiming::load() {
  if (!platform_->description().is_host) return std::nullopt;
  return other_runnable_threads();
}

}  // namespace noisefloor
