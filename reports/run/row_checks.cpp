#include "reports/run/files.h"
#include "reports/run/run_files.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace noisefloor {
namespace {

// A row's time is the median of its samples, of an even number any time between the two in the middle. All were rounded
// when they were written.
void require_median(const char* column, double time, const char* field, std::vector<double> samples) {
  constexpr double kRounding = 1e-3, kRelative = 1e-5;
  if (samples.empty()) throw failure("column '{}' is {}, but there are no {}", column, time, field);
  std::ranges::sort(samples);
  const double low = samples[(samples.size() - 1) / 2], high = samples[samples.size() / 2];
  if (time < low * (1 - kRelative) - kRounding || time > high * (1 + kRelative) + kRounding)
    throw failure("column '{}' is {}, but the median of its {} is {}", column, time, field, (low + high) / 2);
}

void require_count(const char* column, const std::optional<long>& is, std::size_t samples, const char* of) {
  if (is && static_cast<std::size_t>(*is) != samples)
    throw failure("column '{}' is {}, but there are {} {} samples", column, *is, samples, of);
}

// A time that is left out would hide from the gate what its samples say. A run from before both warm times has one.
void require_a_warm_time(const SweepRow& row, const RowSamples& taken) {
  if (!taken.warm_serial_us.empty() && !row.time_warm_serial_us)
    throw failure("column 'time_warm_serial_us' is blank, but there are {} warm_serial_us",
                  taken.warm_serial_us.size());
  if (!taken.warm_us.empty() && !row.time_warm_us && !row.time_warm_serial_us)
    throw failure("columns 'time_warm_us' and 'time_warm_serial_us' are blank, but there are {} warm_us",
                  taken.warm_us.size());
}

// `column` must be `numerator` over `denominator`, times `unit`. Each has six digits in the file.
void require_rate(const char* column, const Figure& is, const char* of, const Figure& numerator,
                  const Figure& denominator, double unit) {
  constexpr double kPrinted = 2e-5;
  if (!is || !numerator || !denominator) return;
  const double wanted = *numerator / *denominator * unit;
  if (!std::isfinite(wanted) || std::abs(*is - wanted) > kPrinted * wanted)
    throw failure("column '{}' is {:.6g}, but {} is {:.6g}", column, *is, of, wanted);
}

// A ratio, its interval and the row that it was measured beside belong together.
void require_a_whole_comparison(const char* column, const Figure& is, const Figure& low, const Figure& high,
                                const std::string& paired_with) {
  if (!is && !low && !high) return;
  if (!is || !low || !high) throw failure("columns '{0}', '{0}_low' and '{0}_high': some are blank, some not", column);
  if (paired_with.empty()) throw failure("column '{}' is {}, but 'paired_with' is blank", column, *is);
  if (*low > *is || *is > *high)
    throw failure("column '{}' is {}, outside its interval, {} to {}", column, *is, *low, *high);
}

}  // namespace

void check_numbers(const SweepRow& row) {
  if (row.status != Outcome::ok) return;
  require_rate("ai", row.ai, "flops over bytes", row.flops, row.bytes, 1);
  require_rate("gflops", row.gflops, "flops over the cold time", row.flops, row.time_cold_us, 1e-3);
  require_rate("gbps", row.gbps, "bytes over the cold time", row.bytes, row.time_cold_us, 1e-3);
  require_rate("pct_of_roof", row.pct_of_roof, "gflops over attainable_gflops", row.gflops, row.attainable_gflops, 100);
  require_a_whole_comparison("speedup_cold", row.speedup_cold, row.speedup_cold_low, row.speedup_cold_high,
                             row.paired_with);
  require_a_whole_comparison("speedup_warm", row.speedup_warm, row.speedup_warm_low, row.speedup_warm_high,
                             row.paired_with);
  if (row.max_rel_error && row.tolerance && *row.max_rel_error > *row.tolerance)
    throw failure("column 'max_rel_error' is {:.6g}, but status is ok and tolerance {:.6g}", *row.max_rel_error,
                  *row.tolerance);
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
  if (row.time_weights_cold_us)
    require_median("time_weights_cold_us", *row.time_weights_cold_us, "weights_cold_us", taken.weights_cold_us);
  const auto& edges = serial ? taken.warm_serial_edge_us : taken.warm_edge_us;
  if (row.edge_latency_us && !edges.empty())
    require_median("edge_latency_us", *row.edge_latency_us, serial ? "warm_serial_edge_us" : "warm_edge_us", edges);
}

}  // namespace noisefloor
