#include "reports/run/pool_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>

#include "reports/run/duel_ratio.h"
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
void append(std::vector<T>& all, const std::vector<T>& more, std::size_t begin, std::size_t end) {
  const auto at = [&](std::size_t i) { return more.begin() + static_cast<std::ptrdiff_t>(std::min(i, more.size())); };
  all.insert(all.end(), at(begin), at(end));
}

// Batches go from place to place, each process from the first. Where places are several, every process has as many
// whole rounds over them, so that all weigh alike; what one took beyond stays out. All stay where one ended within its
// first.
void append_phase(const PhaseFields& phase, std::size_t places, const std::vector<PooledRow>& runs, RowSamples& all) {
  const auto processes = [](const PooledRow& run) { return static_cast<std::size_t>(run.row.processes.value_or(1)); };
  std::size_t rounds = std::numeric_limits<std::size_t>::max();  // of a process
  for (const PooledRow& run : runs)
    rounds = std::min(rounds, (run.samples.*phase.batches).size() / places / processes(run));
  const bool alike = places > 1 && rounds > 0;
  for (const PooledRow& run : runs) {
    const auto& batches = run.samples.*phase.batches;
    const auto& us = run.samples.*phase.us;
    const std::size_t blocks = alike ? processes(run) : 1, own = batches.size() / blocks;
    const auto sample = [&](std::size_t batch) {  // its first one
      return std::accumulate(batches.begin(), batches.begin() + static_cast<std::ptrdiff_t>(batch), std::size_t{0});
    };
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t begin = block * own, end = begin + (alike ? rounds * places : own);
      append(all.*phase.batches, batches, begin, end);
      append(all.*phase.mhz, run.samples.*phase.mhz, begin, end);
      append(all.*phase.us, us, sample(begin), batches.empty() ? us.size() : sample(end));
    }
    if (phase.edge_us != nullptr) {
      const auto& edges = run.samples.*phase.edge_us;
      append(all.*phase.edge_us, edges, 0, edges.size());
    }
  }
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
  if (row.pct_of_roof && *row.pct_of_roof <= 100) row.above_roof.clear();
}

struct DuelFields {
  Figure SweepRow::*value;
  Figure SweepRow::*low;
  Figure SweepRow::*high;
};
constexpr DuelFields kDuels[] = {{&SweepRow::duel_cold, &SweepRow::duel_cold_low, &SweepRow::duel_cold_high},
                                 {&SweepRow::duel_warm, &SweepRow::duel_warm_low, &SweepRow::duel_warm_high}};

// Where each process let the same two meet.
void pool_duels(const std::vector<PooledRow>& runs, SweepRow& row) {
  const std::string rival = std::move(row.rival);
  row.rival.clear();
  for (const DuelFields& duel : kDuels) {
    std::vector<Ratio> ratios;
    for (const auto& [one, samples] : runs)
      if (one.rival == rival && one.*duel.value && one.*duel.low && one.*duel.high)
        ratios.push_back({*(one.*duel.value), *(one.*duel.low), *(one.*duel.high)});
    (row.*duel.value).reset(), (row.*duel.low).reset(), (row.*duel.high).reset();
    if (rival.empty() || ratios.size() < runs.size()) continue;
    const Ratio pooled = ratio_of_processes(ratios);
    row.*duel.value = pooled.value;
    row.*duel.low = pooled.low;
    row.*duel.high = pooled.high;
    row.rival = rival;
  }
}

// "none", or names with | between them.
std::set<std::string> throttles(const std::string& text) {
  std::set<std::string> names;
  for (const auto part : std::views::split(text, '|')) names.emplace(part.begin(), part.end());
  names.erase("none");
  return names;
}

// What one process met is true of the row: the gate asks for it.
void take_worst(const std::vector<PooledRow>& runs, PooledRow& pooled) {
  SweepRow& row = pooled.row;
  std::set<std::string> throttle;
  std::vector<double> edges;
  long processes = 0;
  bool other_kernels = false;
  double spent_s = 0;
  for (const auto& [one, samples] : runs) {
    throttle.merge(throttles(one.throttle));
    for (Figure SweepRow::*figure :
         {&SweepRow::load, &SweepRow::waited_pct, &SweepRow::max_rel_error, &SweepRow::tolerance})
      if (one.*figure && !(row.*figure && *(row.*figure) >= *(one.*figure))) row.*figure = one.*figure;
    if (row.above_roof.empty()) row.above_roof = one.above_roof;
    if (one.edge_us) edges.push_back(*one.edge_us);
    processes += one.processes.value_or(1);
    spent_s += one.spent_s.value_or(0);
    other_kernels |=
        !samples.kernels.empty() && !pooled.samples.kernels.empty() &&
        (samples.kernels != pooled.samples.kernels || samples.kernel_counts != pooled.samples.kernel_counts);
    if (one.stop == "time_cap") row.stop = one.stop;
    if (one.warm_stop == "time_cap") row.warm_stop = one.warm_stop;
  }
  if (other_kernels)
    row.reason += std::string(row.reason.empty() ? "" : "; ") +
                  "its processes ran different kernels, as a library's search chose: those named are the first's";
  if (!throttle.empty()) row.throttle = fmt::format("{}", fmt::join(throttle, "|"));
  if (edges.size() < runs.size() || !at_one_edge(edges)) row.edge_us.reset();
  row.processes = processes;
  row.spent_s = spent_s;
}

// Of the runs that are not ok, one that counts as ours if there is one; null: all are ok.
const PooledRow* worst_failure(const std::vector<PooledRow>& runs) {
  const PooledRow* worst = nullptr;
  for (const PooledRow& run : runs)
    if (run.row.status != Outcome::ok && (worst == nullptr || (is_failure(run.row) && !is_failure(worst->row))))
      worst = &run;
  return worst;
}

}  // namespace

PooledRow pool_rows(const std::vector<PooledRow>& runs) {
  if (const PooledRow* bad = worst_failure(runs)) return *bad;
  const SweepRow& first = runs.front().row;
  for (const auto& [row, samples] : runs) {
    for (const auto& [name, count] : {std::pair{"places", row.places}, std::pair{"processes", row.processes}})
      if (count && *count < 1)
        throw std::runtime_error(fmt::format("{}: column '{}' is {}, not 1 and more", row.name(), name, *count));
    if (row.gpu_uuid != first.gpu_uuid)
      throw std::runtime_error(fmt::format("{} is of two GPUs, {} and {}", row.name(), first.gpu_uuid, row.gpu_uuid));
    if (row.places != first.places)
      throw std::runtime_error(fmt::format("{} had {} places for its tensors, and {}", row.name(),
                                           first.places.value_or(1), row.places.value_or(1)));
  }

  PooledRow pooled{first, {}};
  pooled.samples.kernels = runs.front().samples.kernels;
  pooled.samples.kernel_counts = runs.front().samples.kernel_counts;
  for (const PhaseFields& phase : kPhases)
    append_phase(phase, static_cast<std::size_t>(first.places.value_or(1)), runs, pooled.samples);
  pool_duels(runs, pooled.row);
  take_worst(runs, pooled);
  take_times(pooled.samples, pooled.row);
  return pooled;
}

}  // namespace noisefloor
