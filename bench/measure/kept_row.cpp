#include "bench/measure/kept_row.h"

#include <algorithm>
#include <utility>

namespace noisefloor {
namespace {

template <class... Members>
void keep_members(const Timing& from, Timing& to, Members... members) {
  ((to.*members = from.*members), ...);
}

}  // namespace

void keep_row(const EarlierRow& earlier, CaseResult& result) {
  const SweepRow blank = std::exchange(result.row, earlier.row);
  SweepRow& row = result.row;
  result.samples = earlier.samples;
  result.kept = true;
  row.networks = blank.networks;
  row.flops = blank.flops;
  row.bytes = blank.bytes;
  row.ai = blank.ai;
  row.shortcut = blank.shortcut;
  row.gflops = *row.flops / *row.time_cold_us * 1e-3;
  row.gbps = *row.bytes / *row.time_cold_us * 1e-3;
  row.above_roof.clear();
}

void keep_other_phases(const EarlierRow& earlier, const std::vector<std::string>& taken, Timing& timing) {
  const auto was_taken = [&](const char* phase) { return std::ranges::find(taken, phase) != taken.end(); };
  Timing before;
  static_cast<RowSamples&>(before) = earlier.samples;
  before.stop = earlier.row.stop;
  before.warm_stop = earlier.row.warm_stop;
  if (!was_taken("cold"))
    keep_members(before, timing, &Timing::cold_us, &Timing::cold_batches, &Timing::cold_mhz, &Timing::stop);
  if (!was_taken("warm"))
    keep_members(before, timing, &Timing::warm_us, &Timing::warm_batches, &Timing::warm_mhz, &Timing::warm_edge_us,
                 &Timing::warm_stop);
  if (!was_taken("serial"))
    keep_members(before, timing, &Timing::warm_serial_us, &Timing::warm_serial_batches, &Timing::warm_serial_mhz,
                 &Timing::warm_serial_edge_us);
  if (!was_taken("weights"))
    keep_members(before, timing, &Timing::weights_cold_us, &Timing::weights_cold_batches, &Timing::weights_cold_mhz);
}

void forget_comparison(SweepRow& row) {
  row.paired_with.clear();
  for (Figure* const figure : {&row.speedup_cold, &row.speedup_cold_low, &row.speedup_cold_high, &row.speedup_warm,
                               &row.speedup_warm_low, &row.speedup_warm_high})
    figure->reset();
}

}  // namespace noisefloor
