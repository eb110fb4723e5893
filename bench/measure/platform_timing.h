// What the measuring loop asks for, of a platform: its timers, and a CUDA device's clocks.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "bench/measure/short_edges.h"
#include "bench/measure/timing_loop.h"
#include "bench/platform/clocks.h"
#include "bench/platform/nvml.h"
#include "bench/platform/platform.h"

namespace noisefloor {

// Of a CUDA device; made once and used for all its cases.
struct DeviceClocks {
  explicit DeviceClocks(int device) : monitor(GpuMonitor::of_cuda_device(device)), sampler(64, 20) {}
  GpuMonitor monitor;
  ClockSampler sampler;
};

class PlatformTiming final : public TimingSource {
 public:
  struct Options {
    DeviceClocks* clocks = nullptr;           // none on the host
    std::function<void()> before_batch = {};  // where nothing is timed
    ShortEdges* edges = nullptr;              // of the platform; none: edges are as they are
    std::size_t places = 1;
    std::function<void(std::size_t place)> move = {};  // where there are several
  };
  using Ranges = std::span<const std::pair<void*, std::size_t>>;

  struct Launches {
    Launch cold;      // one alone
    Launch pipeline;  // as a pipeline runs them, one behind the other
    Launch ordinary;  // each when the one before it has ended
    // In a build that is slowed down on purpose: what takes the place of a warm one.
    std::function<Launch(const Launch&, Edges, int repeats)> slowed = {};

    Launch warm(Edges edges, int repeats) const {
      const Launch& launch = edges == Edges::pipeline ? pipeline : ordinary;
      return slowed ? slowed(launch, edges, repeats) : launch;
    }
  };
  // `resident` as in Platform::time_cold(); what it and the options point to must outlive this.
  PlatformTiming(Platform& platform, Launches launches, Ranges resident, Options options);

  double now() override;
  std::vector<double> cold(int samples) override;
  std::vector<double> warm(int samples, int repeats, Edges edges) override;
  std::optional<ClockReading> clock() override;
  std::optional<std::uint64_t> clock_event_reasons() override;
  std::size_t places() const override { return options_.places; }
  void move_to(std::size_t place) override {
    if (options_.move) options_.move(place);
  }
  std::span<const double> waits_us() override { return platform_->waits_us(); }
  std::optional<double> load() override;
  std::vector<double> edges_us(int samples) override { return platform_->time_edges(samples); }
  std::vector<double> settled_edges_us(int samples) override {
    return options_.edges != nullptr ? options_.edges->settle(samples) : edges_us(samples);
  }

 private:
  Platform* platform_;
  Launches launches_;
  Ranges resident_;
  Options options_;
  KeptGraphs graphs_;  // of the warm batches of one phase
  Edges edges_of_graphs_ = Edges::pipeline;
};

}  // namespace noisefloor
