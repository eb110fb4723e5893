#include "reports/run/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace noisefloor {
namespace {

// A row's time is the median of its samples, of an even number any time between the two in the middle. All were rounded
// when they were written.
void require_median(const char* column, double time, const char* field, std::vector<double> samples) {
  constexpr double kRounding = 1e-3, kRelative = 1e-5;
  if (samples.empty())
    throw std::runtime_error(fmt::format("column '{}' is {}, but there are no {}", column, time, field));
  std::ranges::sort(samples);
  const double low = samples[(samples.size() - 1) / 2], high = samples[samples.size() / 2];
  if (time < low * (1 - kRelative) - kRounding || time > high * (1 + kRelative) + kRounding)
    throw std::runtime_error(
        fmt::format("column '{}' is {}, but the median of its {} is {}", column, time, field, (low + high) / 2));
}

void require_count(const char* column, const std::optional<long>& is, std::size_t samples, const char* of) {
  if (is && static_cast<std::size_t>(*is) != samples)
    throw std::runtime_error(fmt::format("column '{}' is {}, but there are {} {} samples", column, *is, samples, of));
}

// A time that is left out would hide from the gate what its samples say. A run from before both warm times has one.
void require_a_warm_time(const SweepRow& row, const RowSamples& taken) {
  if (!taken.warm_serial_us.empty() && !row.time_warm_serial_us)
    throw std::runtime_error(fmt::format("column 'time_warm_serial_us' is blank, but there are {} warm_serial_us",
                                         taken.warm_serial_us.size()));
  if (!taken.warm_us.empty() && !row.time_warm_us && !row.time_warm_serial_us)
    throw std::runtime_error(fmt::format(
        "columns 'time_warm_us' and 'time_warm_serial_us' are blank, but there are {} warm_us", taken.warm_us.size()));
}

}  // namespace

void check_numbers(const SweepRow& row) {
  if (row.status == Outcome::ok && row.max_rel_error && row.tolerance && *row.max_rel_error > *row.tolerance)
    throw std::runtime_error(fmt::format("column 'max_rel_error' is {:.6g}, but status is ok and tolerance {:.6g}",
                                         *row.max_rel_error, *row.tolerance));
}

void check_against_samples(const SweepRow& row, const RowSamples& taken) {
  if (row.status != Outcome::ok) return;
  require_count("samples", row.samples, taken.cold_us.size(), "cold");
  require_count("warm_samples", row.warm_samples, taken.warm_us.size(), "warm");
  if (!taken.cold_us.empty()) require_median("time_cold_us", *row.time_cold_us, "cold_us", taken.cold_us);
  require_a_warm_time(row, taken);
  // Without serial samples the warm ones are of ordinary edges already.
  const bool serial = !taken.warm_serial_us.empty();
  if (row.time_warm_us) require_median("time_warm_us", *row.time_warm_us, "warm_us", taken.warm_us);
  if (row.time_warm_serial_us)
    require_median("time_warm_serial_us", *row.time_warm_serial_us, serial ? "warm_serial_us" : "warm_us",
                   serial ? taken.warm_serial_us : taken.warm_us);
  const auto& edges = serial ? taken.warm_serial_edge_us : taken.warm_edge_us;
  if (row.edge_latency_us && !edges.empty())
    require_median("edge_latency_us", *row.edge_latency_us, serial ? "warm_serial_edge_us" : "warm_edge_us", edges);
}

}  // namespace noisefloor
