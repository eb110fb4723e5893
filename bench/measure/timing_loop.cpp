#include "bench/measure/timing_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bench/platform/nvml.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

// The gate takes what batches differ by as a part of the noise; of fewer batches it says little. A batch of
// short launches is also one moment: what clocks, or a host's cores, did just before is in all of its samples.
constexpr std::size_t kFewestBatches = 4;

// A warm phase goes on until batches agree so far (the standard error of their mean), or its time is over: each is a
// graph of its own, and graphs of one launch may differ by some percent.
constexpr double kBatchesKnownTo = 0.005;

// A launch that runs into the power cap begins at the full clock and is taken down in steps over some hundred
// milliseconds. What was sampled before a step is dropped, for as long as this; a clock that never settles is then
// taken as it is.
constexpr double kSettleSeconds = 0.5;
constexpr double kClockStep = 0.01;

// Off by more than this a sample is dropped: half of what the gate calls a change would be 1.5 %. Where no other
// program runs, threads hardly ever wait at all.
constexpr double kWaitShare = 0.01;

constexpr double kFlushUs = 50;     // of a GPU's L2, before each cold launch
constexpr double kWarmRunUs = 200;  // of one warm sample: starting the graph is then amortised
constexpr std::array kWarmRepeats = {1, 2, 5, 10, 20};

// Of EdgeLatency.
constexpr int kFirstLooks = 5;
constexpr double kLonger = 1.1;  // half of what lies between the levels

// Samples per call, so that one call lasts about 20 ms: short enough to check clocks between calls, long enough that
// the gate before it costs nothing.
int batch_size(double sample_us, int smallest, int largest) {
  return std::clamp(static_cast<int>(20e3 / std::max(sample_us, 1.0)), smallest, largest);
}

// Of a cold batch where tensors lie in one slot, and of all batches of a round of many slots: most medians are known
// by so many.
constexpr int kMostOfColdBatch = 50, kColdOfRound = 320, kFewestOfColdBatch = 2;

int most_of_cold_batch(std::size_t slots) {
  return slots == 1 ? kMostOfColdBatch
                    : std::clamp(kColdOfRound / static_cast<int>(slots), kFewestOfColdBatch, kMostOfColdBatch);
}

// A source may be another process: what it answers is looked at.
std::vector<double> checked(std::vector<double> samples) {
  if (samples.empty()) throw std::runtime_error("the timer gave no samples");
  for (const double sample : samples)
    if (!(sample > 0 && std::isfinite(sample))) throw failure("the timer gave a sample of {} us", sample);
  return samples;
}

// Whether the clock went from one level to another since it was last asked.
class ClockSteps {
 public:
  bool stepped(double mhz) {
    if (!(mhz > 0)) return false;  // unreadable: says nothing
    const bool step = last_mhz_ > 0 && std::abs(mhz - last_mhz_) > kClockStep * last_mhz_;
    last_mhz_ = mhz;
    return step;
  }

 private:
  double last_mhz_ = 0;
};

}  // namespace

bool waited(double sample_us, double wait_us) {
  return wait_us > kWaitShare * sample_us;
}

TimingLoop::Phase TimingLoop::sample(const StoppingRule& rule, bool settles,
                                     const std::function<std::vector<double>()>& take,
                                     const std::function<bool(const Phase&)>& known) {
  Phase taken;
  ClockSteps clock_steps;
  double start = source_->now(), settling_seconds = 0, discarded_seconds = 0;
  while (true) {
    const double batch_start = source_->now();
    source_->move_to(taken.batches.size() % source_->slots());
    const auto all = checked(take());
    const auto samples = undisturbed(all);
    read_load();
    std::optional<double> mhz;
    std::optional<std::uint64_t> reasons;
    if (!options_.quick) mhz = source_->sm_clock_mhz(), reasons = source_->clock_event_reasons();
    // Time spent on discarded samples does not count against the cap.
    const auto discard = [&](std::size_t dropped) {
      const double spent =
          (source_->now() - batch_start) * static_cast<double>(dropped) / static_cast<double>(all.size());
      discarded_seconds += spent;
      start += spent;
    };
    if (disqualifies(reasons) && !timing_.throttled() && discarded_seconds < options_.throttle_retry_seconds) {
      discard(all.size());
      continue;
    }
    if (reasons) timing_.throttle = timing_.throttle.value_or(0) | (*reasons & kClockThrottle);
    if (settles && mhz && clock_steps.stepped(*mhz) && settling_seconds < kSettleSeconds) {
      const double now = source_->now();
      settling_seconds += now - start;
      start = now;
      taken = {};
      continue;
    }
    const bool dropped = samples.size() < all.size();
    if (dropped) discard(all.size() - samples.size());
    taken.us.insert(taken.us.end(), samples.begin(), samples.end());
    if (!samples.empty()) {
      taken.batches.push_back(samples.size());
      if (mhz) taken.mhz.push_back(*mhz > 0 ? *mhz : std::numeric_limits<double>::quiet_NaN());
    }
    const double elapsed = source_->now() - start;
    if (const auto stop = rule.verdict(taken.us, elapsed); stop && (elapsed >= rule.wall_seconds || known(taken))) {
      taken.stop = *stop;
      break;
    }
    if (dropped && discarded_seconds >= options_.throttle_retry_seconds) {
      taken.stop = "time_cap";
      timing_.others.in_the_way = taken.us.size() < StoppingRule::kFewest;
      break;
    }
  }
  timing_.discarded_seconds += discarded_seconds;
  return taken;
}

void TimingLoop::cold() {
  probe_us_ = probe([&] { return source_->cold(1); });
  const int batch = options_.host
                        ? batch_size(probe_us_, 1, 20)
                        : batch_size(probe_us_ + kFlushUs, kFewestOfColdBatch, most_of_cold_batch(source_->slots()));
  Phase taken = sample(
      options_.cold, /*settles=*/true, [&] { return source_->cold(batch); },
      // Whole rounds: each slot weighs as much as any other.
      [&](const Phase& so_far) {
        return so_far.batches.size() >= kFewestBatches && so_far.batches.size() % source_->slots() == 0;
      });
  std::tie(timing_.cold_us, timing_.cold_batches, timing_.cold_mhz, timing_.stop) =
      std::tie(taken.us, taken.batches, taken.mhz, taken.stop);
}

int warm_repeats(double launch_us) {
  for (const int repeats : kWarmRepeats)
    if (repeats * launch_us >= kWarmRunUs) return repeats;
  return kWarmRepeats.back();
}

WarmProbe probe_warm_launches(const std::function<std::vector<double>(int samples, int repeats)>& warm) {
  constexpr int kSamples = 3, kFewest = 5;
  constexpr double kLongUs = 2e3;  // of which starting it is no part that matters
  const double alone_us = checked(warm(1, 1)).front();
  if (alone_us >= kLongUs) return {alone_us, warm_repeats(alone_us)};
  const double launch_us = median(checked(warm(kSamples, std::max(kFewest, warm_repeats(alone_us)))));
  return {launch_us, warm_repeats(launch_us)};
}

// The time of one sample, of an undisturbed one where some tries have it: batches have their size from it.
double TimingLoop::probe(const std::function<std::vector<double>()>& take) {
  constexpr int kTries = 5;
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    const double once = checked(take()).front();
    shortest = std::min(shortest, once);
    const auto waits = source_->waits_us();
    if (waits.empty() || !waited(once, waits.front())) return once;
  }
  return shortest;
}

// Those of the last call whose threads always had a core.
std::vector<double> TimingLoop::undisturbed(const std::vector<double>& samples) {
  const auto waits = source_->waits_us();
  if (!options_.watch_others || waits.size() != samples.size()) return samples;
  std::vector<double> kept;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (!waited(samples[i], waits[i])) kept.push_back(samples[i]);
  timing_.others.judged += samples.size();
  timing_.others.waited += samples.size() - kept.size();
  return kept;
}

void TimingLoop::read_load() {
  const auto load = source_->load();
  if (!load) return;
  timing_.others.load_sum += *load;
  ++timing_.others.load_readings;
}

double TimingLoop::probe_warm() {
  const auto pipeline = [&](int samples, int repeats) {
    return source_->warm(samples, repeats, TimingSource::Edges::pipeline);
  };
  if (options_.host)  // a launch is a call, and a process's first ones were the cold ones
    warm_probe_ = {probe_us_ > 0 ? probe_us_ : probe([&] { return pipeline(1, 1); }), 1};
  else
    warm_probe_ = probe_warm_launches(pipeline);
  return warm_probe_.launch_us;
}

// A phase between two looks at the edges.
TimingLoop::Phase TimingLoop::sample_warm(const std::function<std::vector<double>(int samples, int repeats)>& take) {
  if (warm_probe_.launch_us == 0) probe_warm();
  const int batch = batch_size(warm_probe_.launch_us * warm_probe_.repeats, 1, 10);
  std::vector<double> edge_latency_us;
  if (options_.look_at_edges) edge_latency_us = source_->settled_edges_us(kEdgeSamples);
  Phase taken = sample(
      options_.warm, /*settles=*/false, [&] { return take(batch, warm_probe_.repeats); },
      [&](const Phase& so_far) {
        const std::size_t batches = so_far.batches.size();
        if (options_.quick || (batches >= kFewestBatches && so_far.us.size() >= options_.warm.maximum_samples))
          return true;
        return batches >= kFewestBatches && batches >= source_->slots() &&
               error_of_batch_mean({so_far.us, so_far.batches}) <= kBatchesKnownTo;
      });
  if (!options_.look_at_edges) return taken;
  const std::vector<double> behind = source_->edges_us(kEdgeSamples);
  edge_latency_us.insert(edge_latency_us.end(), behind.begin(), behind.end());
  if (!edge_latency_us.empty()) taken.edge_latency_us = checked(edge_latency_us);
  return taken;
}

void TimingLoop::warm() {
  if (timing_.others.in_the_way) return;
  Phase taken = sample_warm(
      [&](int samples, int repeats) { return source_->warm(samples, repeats, TimingSource::Edges::pipeline); });
  std::tie(timing_.warm_us, timing_.warm_batches, timing_.warm_mhz, timing_.warm_edge_us, timing_.warm_stop) =
      std::tie(taken.us, taken.batches, taken.mhz, taken.edge_latency_us, taken.stop);
}

void TimingLoop::warm_serial() {
  if (timing_.others.in_the_way) return;
  Phase taken = sample_warm(
      [&](int samples, int repeats) { return source_->warm(samples, repeats, TimingSource::Edges::ordinary); });
  std::tie(timing_.warm_serial_us, timing_.warm_serial_batches, timing_.warm_serial_mhz, timing_.warm_serial_edge_us) =
      std::tie(taken.us, taken.batches, taken.mhz, taken.edge_latency_us);
}

void TimingLoop::weights_cold() {
  if (timing_.others.in_the_way) return;
  Phase taken = sample_warm([&](int samples, int repeats) { return source_->weights_cold(samples, repeats); });
  std::tie(timing_.weights_cold_us, timing_.weights_cold_batches, timing_.weights_cold_mhz) =
      std::tie(taken.us, taken.batches, taken.mhz);
}

EdgeLatency::EdgeLatency(Time time, Turn turn, Say say)
    : time_(std::move(time)), turn_(std::move(turn)), say_(std::move(say)) {
  for (int look = 0; look < kFirstLooks; ++look) {  // a first one may be long by the clock, or by a neighbour's slice
    const std::vector<double> edges = time_(kEdgeSamples);
    if (edges.empty()) return;
    shortest_us_ = look == 0 ? median(edges) : std::min(shortest_us_, median(edges));
  }
}

std::vector<double> EdgeLatency::settle(int samples) {
  std::vector<double> edges = time_(samples);
  if (edges.empty()) return edges;
  const auto are_long = [&] { return median(edges) > kLonger * shortest_us_; };
  if (!are_long()) {
    in_vain_ = false;
  } else if (turn_ && !in_vain_) {
    try {
      turn_();
    } catch (const std::exception& error) {  // there may be one for the next phase
      const std::string why = std::string("edges stay long: ") + error.what();
      if (say_ && why != std::exchange(said_, why)) say_(why);
      return edges;
    }
    edges = time_(samples);
    in_vain_ = are_long();
  }
  shortest_us_ = std::min(shortest_us_, median(edges));
  return edges;
}

}  // namespace noisefloor
