#include "reports/run/row_checks.h"

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

}  // namespace

void check_against_samples(const SweepRow& row, const RowSamples& taken) {
  if (row.status != Outcome::ok) return;
  if (row.samples && static_cast<std::size_t>(*row.samples) != taken.cold_us.size())
    throw std::runtime_error(
        fmt::format("column 'samples' is {}, but there are {} cold samples", *row.samples, taken.cold_us.size()));
  if (!taken.cold_us.empty()) require_median("time_cold_us", *row.time_cold_us, "cold_us", taken.cold_us);
  // Without serial samples the warm ones are of ordinary edges already.
  const bool serial = !taken.warm_serial_us.empty();
  if (row.time_warm_us) require_median("time_warm_us", *row.time_warm_us, "warm_us", taken.warm_us);
  if (row.time_warm_serial_us)
    require_median("time_warm_serial_us", *row.time_warm_serial_us, serial ? "warm_serial_us" : "warm_us",
                   serial ? taken.warm_serial_us : taken.warm_us);
  const auto& edges = serial ? taken.warm_serial_edge_us : taken.warm_edge_us;
  if (row.edge_us && !edges.empty())
    require_median("edge_us", *row.edge_us, serial ? "warm_serial_edge_us" : "warm_edge_us", edges);
}

}  // namespace noisefloor
