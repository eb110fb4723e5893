#include "bench/measure/platform_timing.h"

#include <chrono>

#include "bench/platform/run_queue.h"

namespace noisefloor {

double ClockedSource::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<ClockReading> ClockedSource::clock() {
  if (clocks_ == nullptr) return std::nullopt;
  clocks_->sampler.enqueue(platform_->context().stream);
  platform_->synchronize();
  return ClockReading{clocks_->sampler.mhz()};
}

std::optional<std::uint64_t> ClockedSource::clock_event_reasons() {
  if (clocks_ == nullptr) return std::nullopt;
  return clocks_->monitor.clock_event_reasons();
}

PlatformTiming::PlatformTiming(Platform& platform, BoundCase& bound, Options options)
    : ClockedSource(platform, options.clocks),
      bound_(&bound),
      options_(std::move(options)),
      resident_(bound.resident()),
      cold_(bound.launch()),
      pipeline_(bound.launch(/*overlapping=*/true)),
      ordinary_(bound.launch()) {
  // The launches of a whole network would fill the driver's queue, which then waits for the device, before the gate
  // opens.
  if (!bound.many_kernels()) return;
  recording_ = platform.record(pipeline_);
  cold_ = [this] {
    recording_->replay();
    return success();
  };
}

std::vector<double> PlatformTiming::cold(int samples) {
  if (options_.before_batch) options_.before_batch();
  return platform_->time_cold(cold_, samples, resident_);
}

// Each batch has a graph of its own, beside those of the batches before it.
std::vector<double> PlatformTiming::warm(int samples, int repeats, Edges edges) {
  if (options_.before_batch) options_.before_batch();
  if (edges != edges_of_graphs_) graphs_.clear();
  edges_of_graphs_ = edges;
  return platform_->time_warm(edges == Edges::pipeline ? pipeline_ : ordinary_, samples, repeats, &graphs_);
}

std::size_t PlatformTiming::slots() const {
  return bound_->many_kernels() || bound_->of_plugin() ? 1 : bound_->fixture().slots();
}

void PlatformTiming::move_to(std::size_t slot) {
  if (slots() == 1) return;
  bound_->fixture().move_to(slot);
  resident_ = bound_->resident();
}

std::optional<double> PlatformTiming::load() {
  if (!platform_->description().is_host) return std::nullopt;
  return other_runnable_threads();
}

}  // namespace noisefloor
