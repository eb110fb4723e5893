#include "reports/run/pool_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "reports/statistics.h"

namespace noisefloor {
namespace {

struct PhaseFields {
  std::vector<double> RowSamples::*us;
  std::vector<std::size_t> RowSamples::*batches;
  std::vector<double> RowSamples::*mhz;
  std::vector<double> RowSamples::*edge_us;  // null: none
};
constexpr PhaseFields kPhases[] = {
    {&RowSamples::cold_us, &RowSamples::cold_batches, &RowSamples::cold_mhz, nullptr},
    {&RowSamples::warm_us, &RowSamples::warm_batches, &RowSamples::warm_mhz, &RowSamples::warm_edge_us},
    {&RowSamples::warm_serial_us, &RowSamples::warm_serial_batches, &RowSamples::warm_serial_mhz,
     &RowSamples::warm_serial_edge_us},
};

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more, std::size_t count) {
  all.insert(all.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(std::min(count, more.size())));
}

// Batches go from place to place, each run from the first: what a run took beyond its last whole round stays out.
void append_phase(const PhaseFields& phase, std::size_t places, const RowSamples& run, RowSamples& all) {
  const auto& batches = run.*phase.batches;
  const std::size_t kept = places > 1 ? batches.size() / places * places : batches.size();
  const std::size_t samples =
      batches.empty()
          ? (run.*phase.us).size()
          : std::accumulate(batches.begin(), batches.begin() + static_cast<std::ptrdiff_t>(kept), std::size_t{0});
  append(all.*phase.us, run.*phase.us, samples);
  append(all.*phase.batches, batches, kept);
  append(all.*phase.mhz, run.*phase.mhz, kept);
  if (phase.edge_us != nullptr) append(all.*phase.edge_us, run.*phase.edge_us, (run.*phase.edge_us).size());
}

Figure median_of_known(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

void take_times(const RowSamples& samples, SweepRow& row) {
  row.time_cold_us = median(samples.cold_us);
  row.time_cold_mad_us = median_absolute_deviation(samples.cold_us);
  row.samples = static_cast<long>(samples.cold_us.size());
  row.sm_clock_mhz = median_of_known(samples.cold_mhz);
  const bool serial = !samples.warm_serial_us.empty();
  if (!samples.warm_us.empty()) {
    row.time_warm_us = median(samples.warm_us);
    row.time_warm_serial_us = serial ? median(samples.warm_serial_us) : *row.time_warm_us;
    row.warm_samples = static_cast<long>(samples.warm_us.size());
    row.warm_clock_mhz = median_of_known(samples.warm_mhz);
  }
  if (row.edge_us) row.edge_us = median(serial ? samples.warm_serial_edge_us : samples.warm_edge_us);
  if (row.gflops) row.gflops = *row.flops / *row.time_cold_us * 1e-3;
  if (row.gbps) row.gbps = *row.bytes / *row.time_cold_us * 1e-3;
  if (row.pct_of_roof && row.attainable_gflops) row.pct_of_roof = 100 * *row.gflops / *row.attainable_gflops;
}

void leave_out_duel(SweepRow& row) {
  row.rival.clear();
  for (Figure SweepRow::*figure : {&SweepRow::duel_cold, &SweepRow::duel_cold_low, &SweepRow::duel_cold_high,
                                   &SweepRow::duel_warm, &SweepRow::duel_warm_low, &SweepRow::duel_warm_high})
    (row.*figure).reset();
}

// Edges have two levels, a fifth apart; a row across both has no edge that is its own.
bool at_one_edge(const std::vector<PooledRow>& runs) {
  std::vector<double> edges;
  for (const PooledRow& run : runs) {
    if (!run.row.edge_us) return false;
    edges.push_back(*run.row.edge_us);
  }
  const auto [least, most] = std::ranges::minmax_element(edges);
  return *most <= 1.1 * *least;
}

}  // namespace

PooledRow pool_rows(const std::vector<PooledRow>& runs) {
  for (const auto& [row, samples] : runs)
    if (row.status != Outcome::ok) return {row, {}};

  const SweepRow& first = runs.front().row;
  for (const auto& [row, samples] : runs) {
    if (row.gpu_uuid != first.gpu_uuid)
      throw std::runtime_error(fmt::format("{} is of two GPUs, {} and {}", row.name(), first.gpu_uuid, row.gpu_uuid));
    if (row.places != first.places)
      throw std::runtime_error(fmt::format("{} had {} places for its tensors, and {}", row.name(),
                                           first.places.value_or(1), row.places.value_or(1)));
  }

  PooledRow pooled{first, {}};
  pooled.samples.kernels = runs.front().samples.kernels;
  pooled.samples.kernel_counts = runs.front().samples.kernel_counts;
  for (const PooledRow& run : runs)
    for (const PhaseFields& phase : kPhases)
      append_phase(phase, static_cast<std::size_t>(first.places.value_or(1)), run.samples, pooled.samples);
  if (pooled.samples.cold_us.empty())
    throw std::runtime_error(
        fmt::format("{}: no run took a batch in each of its {} places", first.name(), first.places.value_or(1)));
  if (!at_one_edge(runs)) pooled.row.edge_us.reset();
  leave_out_duel(pooled.row);
  long processes = 0;
  double spent_s = 0;
  for (const PooledRow& run : runs) {
    processes += run.row.processes.value_or(1);
    spent_s += run.row.spent_s.value_or(0);
  }
  pooled.row.processes = processes;
  pooled.row.spent_s = spent_s;
  take_times(pooled.samples, pooled.row);
  return pooled;
}

}  // namespace noisefloor
