#include "bench/measure/timing_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bench/measure/short_edges.h"
#include "bench/platform/nvml.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

// The gate takes the spread from batch to batch as a part of the noise; of fewer batches it says little. A batch of
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

// A median of fewer says nothing of spread.
constexpr std::size_t kFewestSamples = 5;

constexpr double kFlushUs = 50;     // of a GPU's L2, before each cold launch
constexpr double kWarmRunUs = 200;  // of one warm sample: starting the graph is then amortised
constexpr std::array kWarmRepeats = {1, 2, 5, 10, 20};

// Samples per call, so that one call lasts about 20 ms: short enough to check clocks between calls, long enough that
// the gate before it costs nothing.
int batch_size(double sample_us, int smallest, int largest) {
  return std::clamp(static_cast<int>(20e3 / std::max(sample_us, 1.0)), smallest, largest);
}

// Of a cold batch where tensors lie at one place, and of all batches of a round of many places: most medians are known
// by so many.
constexpr int kMostOfColdBatch = 50, kColdOfRound = 320, kFewestOfColdBatch = 2;

int most_of_cold_batch(std::size_t places) {
  return places == 1 ? kMostOfColdBatch
                     : std::clamp(kColdOfRound / static_cast<int>(places), kFewestOfColdBatch, kMostOfColdBatch);
}

// A source may be another process: what it answers is looked at.
std::vector<double> checked(std::vector<double> samples) {
  if (samples.empty()) throw std::runtime_error("the timer gave no samples");
  for (const double sample : samples)
    if (!(sample > 0 && std::isfinite(sample)))
      throw std::runtime_error(fmt::format("the timer gave a sample of {} us", sample));
  return samples;
}

void add(std::optional<std::uint64_t>& seen, std::optional<std::uint64_t> reasons) {
  if (reasons) seen = seen.value_or(0) | (*reasons & kClockThrottle);
}

double share_dropped(const std::vector<double>& all, const std::vector<double>& kept) {
  return static_cast<double>(all.size() - kept.size()) / static_cast<double>(all.size());
}

double readable(const ClockReading& clock) {
  return clock.mhz > 0 ? clock.mhz : std::numeric_limits<double>::quiet_NaN();
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

void TimingLoop::cold() {
  probe_us_ = probe([&] { return source_->cold(1); });
  const int batch = options_.host
                        ? batch_size(probe_us_, 1, 20)
                        : batch_size(probe_us_ + kFlushUs, kFewestOfColdBatch, most_of_cold_batch(source_->places()));
  Timing taken;
  ClockSteps clock_steps;
  double settling_seconds = 0;
  double start = source_->now();
  while (true) {
    const double batch_start = source_->now();
    source_->move_to(taken.cold_batches.size() % source_->places());
    const auto all = checked(source_->cold(batch));
    const auto samples = undisturbed(all);
    read_load();
    const auto clock = source_->clock();
    const auto reasons = source_->clock_event_reasons();
    if (disqualifies(reasons) && taken.discarded_seconds < options_.throttle_retry_seconds) {
      const double spent = source_->now() - batch_start;
      taken.discarded_seconds += spent;
      start += spent;  // time spent on discarded samples does not count against the cap
      continue;
    }
    add(taken.throttle, reasons);
    if (clock && clock_steps.stepped(clock->mhz) && settling_seconds < kSettleSeconds) {
      const double now = source_->now();
      settling_seconds += now - start;
      start = now;
      taken = {.throttle = taken.throttle, .discarded_seconds = taken.discarded_seconds};
      continue;
    }
    const bool dropped = samples.size() < all.size();
    if (dropped) {
      const double spent = (source_->now() - batch_start) * share_dropped(all, samples);
      taken.discarded_seconds += spent;
      start += spent;
    }
    if (clock) taken.cold_mhz.push_back(readable(*clock));
    if (!samples.empty()) taken.cold_batches.push_back(samples.size());
    taken.cold_us.insert(taken.cold_us.end(), samples.begin(), samples.end());
    const double elapsed = source_->now() - start;
    // Whole rounds: each place weighs as much as any other.
    const bool spread_known =
        (taken.cold_batches.size() >= kFewestBatches && taken.cold_batches.size() % source_->places() == 0) ||
        elapsed >= options_.cold.wall_seconds;
    if (const auto stop = options_.cold.verdict(taken.cold_us, elapsed); stop && spread_known) {
      taken.stop = *stop;
      break;
    }
    if (dropped && taken.discarded_seconds >= options_.throttle_retry_seconds) {
      taken.stop = "time_cap";
      timing_.others.in_the_way = taken.cold_us.size() < kFewestSamples;
      break;
    }
  }
  taken.others = timing_.others;
  timing_ = std::move(taken);
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

TimingLoop::Warm TimingLoop::sample_warm(TimingSource::Edges edges) {
  const int repeats = warm_probe_.repeats;
  const int batch = batch_size(warm_probe_.launch_us * repeats, 1, 10);
  Warm taken;
  double start = source_->now();
  double discarded_seconds = 0;
  std::optional<std::string> stop;
  do {
    const double batch_start = source_->now();
    source_->move_to(taken.batches.size() % source_->places());
    const auto all = checked(source_->warm(batch, repeats, edges));
    const auto samples = undisturbed(all);
    read_load();
    const auto clock = source_->clock();
    const auto reasons = source_->clock_event_reasons();
    if (disqualifies(reasons) && !timing_.throttled() && discarded_seconds < options_.throttle_retry_seconds) {
      const double spent = source_->now() - batch_start;
      discarded_seconds += spent;
      start += spent;
      continue;
    }
    add(timing_.throttle, reasons);
    taken.us.insert(taken.us.end(), samples.begin(), samples.end());
    if (!samples.empty()) {
      taken.batches.push_back(samples.size());
      if (clock) taken.mhz.push_back(readable(*clock));
    }
    if (samples.size() < all.size()) {
      const double spent = (source_->now() - batch_start) * share_dropped(all, samples);
      discarded_seconds += spent;
      start += spent;
    }
    const double elapsed = source_->now() - start;
    stop = options_.warm.verdict(taken.us, elapsed);
    const bool spread_known =
        taken.batches.size() >= kFewestBatches && mean_of_batches({taken.us, taken.batches}).error <= kBatchesKnownTo;
    const bool enough = taken.us.size() >= options_.warm.maximum_samples && taken.batches.size() >= kFewestBatches;
    const bool everywhere = taken.batches.size() >= source_->places();
    if (!options_.quick && !(spread_known && everywhere) && !enough && elapsed < options_.warm.wall_seconds)
      stop.reset();
    if (!stop && samples.size() < all.size() && discarded_seconds >= options_.throttle_retry_seconds) {
      stop = "time_cap";
      timing_.others.in_the_way = taken.us.size() < kFewestSamples;
    }
  } while (!stop);
  taken.stop = *stop;
  timing_.discarded_seconds += discarded_seconds;
  return taken;
}

// A phase between two looks at the edges.
TimingLoop::Warm TimingLoop::sample_beside_edges(TimingSource::Edges edges) {
  if (!options_.look_at_edges) return sample_warm(edges);
  std::vector<double> edge_us = source_->settled_edges_us(kEdgeSamples);
  Warm taken = sample_warm(edges);
  const std::vector<double> behind = source_->edges_us(kEdgeSamples);
  edge_us.insert(edge_us.end(), behind.begin(), behind.end());
  if (!edge_us.empty()) taken.edge_us = checked(edge_us);
  return taken;
}

void TimingLoop::warm() {
  if (timing_.others.in_the_way) return;
  if (warm_probe_.launch_us == 0) probe_warm();
  Warm taken = sample_beside_edges(TimingSource::Edges::pipeline);
  std::tie(timing_.warm_us, timing_.warm_batches, timing_.warm_mhz, timing_.warm_edge_us, timing_.warm_stop) =
      std::tie(taken.us, taken.batches, taken.mhz, taken.edge_us, taken.stop);
}

void TimingLoop::warm_serial() {
  if (timing_.others.in_the_way) return;
  Warm taken = sample_beside_edges(TimingSource::Edges::ordinary);
  std::tie(timing_.warm_serial_us, timing_.warm_serial_batches, timing_.warm_serial_mhz, timing_.warm_serial_edge_us) =
      std::tie(taken.us, taken.batches, taken.mhz, taken.edge_us);
}

}  // namespace noisefloor
