// What the measuring loop asks for, of a platform: its timers, and a CUDA device's clocks.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/measure/bound_case.h"
#include "bench/measure/timing_loop.h"
#include "bench/platform/clocks.h"
#include "bench/platform/nvml.h"
#include "bench/platform/platform.h"

namespace noisefloor {

// Of a CUDA device; made once and used for all its cases.
struct DeviceClocks {
  explicit DeviceClocks(int device) : monitor(GpuMonitor::of_cuda_device(device)), sampler(20) {}
  GpuMonitor monitor;
  ClockSampler sampler;
};

// Of whatever is timed beside a platform, which must outlive it, as must the clocks: none on the host.
class ClockedSource : public TimingSource {
 public:
  ClockedSource(Platform& platform, DeviceClocks* clocks) : platform_(&platform), clocks_(clocks) {}
  double now() override;
  std::optional<ClockReading> clock() override;
  std::optional<std::uint64_t> clock_event_reasons() override;

 protected:
  Platform* platform_;

 private:
  DeviceClocks* clocks_;
};

// A bound case's launches.
class PlatformTiming final : public ClockedSource {
 public:
  struct Options {
    DeviceClocks* clocks = nullptr;
    std::function<void()> before_batch = {};  // where nothing is timed
    EdgeLatency* edges = nullptr;             // of the platform; none: edges are as they are
  };
  // These, and what the options point to, must outlive it.
  PlatformTiming(Platform& platform, BoundCase& bound, Options options);
  PlatformTiming(Platform& platform, BoundCase& bound) : PlatformTiming(platform, bound, Options()) {}

  std::vector<double> cold(int samples) override;
  std::vector<double> warm(int samples, int repeats, Edges edges) override;
  // One where its launches were recorded, and of a plugin, which may keep what it made of its pointers.
  std::size_t slots() const override;
  void move_to(std::size_t slot) override;
  std::span<const double> waits_us() override { return platform_->waits_us(); }
  std::optional<double> load() override;
  std::vector<double> edges_us(int samples) override { return platform_->time_edges(samples); }
  std::vector<double> settled_edges_us(int samples) override {
    return options_.edges != nullptr ? options_.edges->settle(samples) : edges_us(samples);
  }

 private:
  BoundCase* bound_;
  Options options_;
  std::vector<std::pair<void*, std::size_t>> resident_;  // what a launch may touch
  std::unique_ptr<Recording> recording_;                 // of many kernels
  Launch cold_, pipeline_, ordinary_;
  KeptGraphs graphs_;  // of the warm batches of one phase
  Edges edges_of_graphs_ = Edges::pipeline;
};

}  // namespace noisefloor
