#include "bench/measure/timing.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "bench/platform/nvml.h"
#include "reports/run/statistics.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

// What slows a measurement through no doing of the kernel. The power cap is not among them: dense products run into it
// on every data-centre GPU, so it is part of what they can do, and the row names it.
constexpr std::uint64_t kDisqualifying = kClockThrottle & ~static_cast<std::uint64_t>(kClockSwPowerCap);

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<const char*> StoppingRule::verdict(std::span<const double> samples, double elapsed_seconds) const {
  if (samples.size() < kFewest) return std::nullopt;
  if (samples.size() >= minimum_samples) {
    const std::vector<double> copy(samples.begin(), samples.end());
    const double center = median(copy);
    const Interval interval = median_interval(copy);
    if ((interval.high - interval.low) / 2 <= relative_half_width * center) return "converged";
  }
  if (samples.size() >= maximum_samples) return "max_samples";
  if (elapsed_seconds >= wall_seconds) return "time_cap";
  return std::nullopt;
}

bool disqualifies(std::optional<std::uint64_t> reasons) {
  return (reasons.value_or(0) & kDisqualifying) != 0;
}

std::optional<double> Others::load() const {
  if (load_readings == 0) return std::nullopt;
  return std::round(100 * load_sum / static_cast<double>(load_readings)) / 100;
}

std::optional<double> Others::waited_pct() const {
  if (judged == 0) return std::nullopt;
  return std::round(1000 * static_cast<double>(waited) / static_cast<double>(judged)) / 10;
}

void write_times(const Timing& timing, SweepRow& row) {
  row.stop = timing.stop;
  row.samples = static_cast<long>(timing.cold_us.size());
  row.sm_clock_mhz = median_of_known(timing.cold_mhz);
  row.warm_clock_mhz = median_of_known(timing.warm_mhz);
  row.weights_clock_mhz = median_of_known(timing.weights_cold_mhz);
  row.warm_stop = timing.warm_stop;
  row.warm_samples = static_cast<long>(timing.warm_us.size());
  if (timing.throttle) row.throttle = clock_events_text(*timing.throttle);
  row.load = timing.others.load();
  row.waited_pct = timing.others.waited_pct();
  if (timing.others.in_the_way) {
    row.status = Outcome::throttled;
    row.throttle = "run_queue";
    row.reason = fmt::format("threads waited for a core in {:.0f} % of the samples, also after {:.0f} s of repeating{}",
                             *row.waited_pct, timing.discarded_seconds,
                             row.load ? fmt::format(": other programs had {:.1f} threads to run", *row.load) : "");
    return;
  }
  if (timing.throttled()) {
    row.status = Outcome::throttled;
    row.reason = fmt::format("{}, also after {:.0f} s of repeating", row.throttle, timing.discarded_seconds);
    return;
  }
  row.time_cold_us = median(timing.cold_us);
  row.time_cold_mad_us = median_absolute_deviation(timing.cold_us);
  row.time_warm_us = median(timing.warm_us);
  row.time_warm_serial_us = timing.warm_serial_us.empty() ? *row.time_warm_us : median(timing.warm_serial_us);
  if (!timing.weights_cold_us.empty()) row.time_weights_cold_us = median(timing.weights_cold_us);
  const std::vector<double>& edges = timing.warm_serial_us.empty() ? timing.warm_edge_us : timing.warm_serial_edge_us;
  if (!edges.empty() && at_one_edge(edges)) row.edge_latency_us = median(edges);
  row.gflops = *row.flops / *row.time_cold_us * 1e-3;
  row.gbps = *row.bytes / *row.time_cold_us * 1e-3;
  row.status = Outcome::ok;
}

}  // namespace noisefloor
