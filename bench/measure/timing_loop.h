// The loop that measures: cold batches until the median is known, then warm ones, while the clocks are watched.
//
// It knows no device. What it measures and by which clock comes from a TimingSource: a case that is made ready
// (contender.h), or a test's script.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/measure/timing.h"

namespace noisefloor {

// What the loop asks for, from one thread, one call after another. An exception of any of them ends the loop.
class TimingSource {
 public:
  virtual ~TimingSource() = default;
  virtual double now() { return steady_seconds(); }
  // `samples` times of one launch each, in microseconds, with nothing of what it touches in cache.
  virtual std::vector<double> cold(int samples) = 0;
  // `samples` times, each the mean of `repeats` launches back to back: as a pipeline runs them, or with ordinary edges
  // alone, where each begins when the one before it has ended.
  enum class Edges { pipeline, ordinary };
  virtual std::vector<double> warm(int samples, int repeats, Edges edges) = 0;
  // The same as a pipeline runs them, where each launch reads weights that are not in cache.
  virtual std::vector<double> weights_cold(int /*samples*/, int /*repeats*/) { return {}; }
  // Where tensors can lie. Batch i of a phase is taken in slot i, modulo their number, and a phase wants a batch of
  // each.
  virtual std::size_t slots() const { return 1; }
  virtual void move_to(std::size_t /*slot*/) {}
  // `samples` times of one ordinary edge between launches without work, in microseconds; empty where there are none.
  virtual std::vector<double> edges_us(int /*samples*/) { return {}; }
  // The same, after edges that had become long were made short again where that can be done.
  virtual std::vector<double> settled_edges_us(int samples) { return edges_us(samples); }
  // Asked behind each batch, as Platform's.
  virtual std::optional<double> sm_clock_mhz() { return std::nullopt; }
  virtual std::optional<std::uint64_t> clock_event_reasons() { return std::nullopt; }
  // Of each sample of the last call: microseconds that its threads were ready to run and had no core. Empty where
  // nobody says.
  virtual std::span<const double> waits_us() { return {}; }
  // Asked behind each batch: threads of others that could run on the cores; nothing where nobody says.
  virtual std::optional<double> load() { return std::nullopt; }
};

struct TimingOptions {
  StoppingRule cold = {};
  StoppingRule warm = {0.005, 10, 200, 0.3};
  // How long throttled batches, and samples whose threads waited for a core, are taken again; each phase so long.
  double throttle_retry_seconds = 5;
  bool host = false;           // a launch is a call: nothing is flushed or queued, so batches are small
  bool quick = false;          // an order is asked for, not a time: one warm batch will do, at any clock
  bool watch_others = true;    // samples whose threads waited for a core are taken again
  bool look_at_edges = false;  // between launches, before each warm phase and behind it
};

// Whether a sample is worth nothing, by what its threads waited for a core.
bool waited(double sample_us, double wait_us);

// How many launches make a warm sample, so that starting them is amortised: one of five numbers, so that most processes
// which time a launch a little differently take the same.
int warm_repeats(double launch_us);

// That number by a launch's time in a sample of many: alone, it is mostly what starting it costs, and a process's first
// ones take longest. `warm` gives samples, each the mean of `repeats` launches.
struct WarmProbe {
  double launch_us = 0;
  int repeats = 1;
};
WarmProbe probe_warm_launches(const std::function<std::vector<double>(int samples, int repeats)>& warm);

class TimingLoop {
 public:
  // `source` must outlive the loop.
  TimingLoop(TimingSource& source, const TimingOptions& options) : source_(&source), options_(options) {}

  void cold();
  void warm();
  void warm_serial();
  void weights_cold();
  // The time of one warm launch, for those who want no cold times.
  double probe_warm();
  // Of the phases that ended; one that threw leaves nothing.
  const Timing& timing() const { return timing_; }

 private:
  struct Phase {
    std::vector<double> us, mhz, edge_latency_us;
    std::vector<std::size_t> batches;
    std::string stop;
  };
  // Batches of `take` until the rule says so and the spread is `known`. `settles`: what was sampled before a step of
  // the clock is dropped.
  Phase sample(const StoppingRule& rule, bool settles, const std::function<std::vector<double>()>& take,
               const std::function<bool(const Phase&)>& known);
  Phase sample_warm(const std::function<std::vector<double>(int samples, int repeats)>& take);
  double probe(const std::function<std::vector<double>()>& take);
  std::vector<double> undisturbed(const std::vector<double>& samples);
  void read_load();

  TimingSource* source_;
  TimingOptions options_;
  double probe_us_ = 0;  // the first cold launch
  WarmProbe warm_probe_;
  Timing timing_;
};

inline constexpr int kEdgeSamples = 4;  // of a look, which takes half a millisecond

// Ordinary edges between kernels have two levels, a fifth apart. They become long once kernels of this process have run
// on eight streams or so, as in cuDNN's search, and short again when another process has used the GPU
// (docs/experiments/measuring). So that all rows are timed at one level, another process is asked for a launch where
// they are long.
class EdgeLatency {
 public:
  using Time = std::function<std::vector<double>(int samples)>;  // of an edge, in microseconds; empty: there are none
  using Turn = std::function<void()>;                   // another process launches a kernel; throws where none can
  using Say = std::function<void(const std::string&)>;  // gets why one could not, once

  // Times edges: whatever is made long is made so later. Without a turn edges stay as they are. A turn that did not
  // help is not asked for again before edges were short by themselves (at a lower clock they are long, too).
  EdgeLatency(Time time, Turn turn, Say say = {});

  // `samples` times of an edge, behind that turn where they had become long.
  std::vector<double> settle(int samples);

 private:
  Time time_;
  Turn turn_;
  Say say_;
  double shortest_us_ = 0;  // 0: none
  bool in_vain_ = false;
  std::string said_;
};

}  // namespace noisefloor
