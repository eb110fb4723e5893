// Cases that are timed and judged, wherever they are: what the measuring loop and paired comparisons ask for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/measure/bound_case.h"
#include "bench/measure/timing_loop.h"
#include "bench/measure/verify.h"
#include "bench/platform/platform.h"

namespace noisefloor {

class Contender : public TimingSource {
 public:
  // Under the watch of this platform's clocks, which must outlive it; null: nobody watches.
  explicit Contender(Platform* platform = nullptr) : platform_(platform) {}
  std::optional<double> sm_clock_mhz() override {
    return platform_ != nullptr ? platform_->sm_clock_mhz() : std::nullopt;
  }
  std::optional<std::uint64_t> clock_event_reasons() override {
    return platform_ != nullptr ? platform_->clock_event_reasons() : std::nullopt;
  }

  // Before a phase or a block: outputs are poisoned, and inputs those of a set (Fixture::use_inputs).
  virtual void poison(std::size_t inputs) = 0;
  virtual Verdict judge() = 0;  // what the launches since left
  // Of a plugin, as Verifier's verify_replay(); right for all others.
  virtual Verdict replay() { return {.reason = ""}; }

 protected:
  Platform* platform_;
};

// Of this process. A plugin is also wrong where its launches set L2 aside for persisting accesses: it must be
// everybody's.
class BoundContender final : public Contender {
 public:
  struct Options {
    std::function<void()> before_batch = {};  // where nothing is timed
    EdgeLatency* edges = nullptr;             // of the platform; none: edges are as they are
    std::uint64_t weights = 0;                // of weights_cold(): which tensors they are
    bool quick = false;                       // an order is asked for: graphs need no chunks of their own
  };
  // The verifier, its fixture, and what the options point to must outlive it.
  BoundContender(std::shared_ptr<BoundCase> bound, Verifier& verifier, Options options);
  BoundContender(std::shared_ptr<BoundCase> bound, Verifier& verifier)
      : BoundContender(std::move(bound), verifier, Options()) {}

  std::vector<double> cold(int samples) override;
  std::vector<double> warm(int samples, int repeats, Edges edges) override;
  std::vector<double> weights_cold(int samples, int repeats) override;
  // One where its launches were recorded, and of a plugin, which may keep what it made of its pointers.
  std::size_t slots() const override;
  void move_to(std::size_t slot) override;
  std::span<const double> waits_us() override { return platform_->waits_us(); }
  std::optional<double> load() override;
  std::vector<double> edges_us(int samples) override { return platform_->time_edges(samples); }
  std::vector<double> settled_edges_us(int samples) override {
    return options_.edges != nullptr ? options_.edges->settle(samples) : edges_us(samples);
  }
  void poison(std::size_t inputs) override;
  Verdict judge() override;
  Verdict replay() override { return bound_->of_plugin() ? verifier_->verify_replay(*bound_) : Contender::replay(); }

 private:
  Launch through_windows(Launch launch);
  std::vector<double> timed(const std::function<std::vector<double>()>& time);

  std::shared_ptr<BoundCase> bound_;
  Verifier* verifier_;
  Options options_;
  std::size_t windows_used_ = 0;
  std::vector<std::pair<void*, std::size_t>> resident_;  // what a launch may touch
  std::unique_ptr<Recording> recording_;                 // of many kernels
  Launch cold_, pipeline_, ordinary_;
  KeptGraphs graphs_;  // of the warm batches of one phase
  Edges edges_of_graphs_ = Edges::pipeline;
  std::optional<WeightCopies> copies_;  // while weights are cold: till they are judged
};

}  // namespace noisefloor
