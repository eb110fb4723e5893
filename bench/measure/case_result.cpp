#include "bench/measure/case_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/counters/kernel_resources.h"
#include "bench/measure/timing_loop.h"

namespace noisefloor {

void add_note(const std::string& note, CaseResult& result) {
  if (!note.empty()) result.note += (result.note.empty() ? "" : "; ") + note;
}

void clear_times(CaseResult& result) {
  SweepRow& row = result.row;
  for (auto* field : {&row.time_cold_us, &row.time_cold_mad_us, &row.time_warm_us, &row.time_warm_serial_us,
                      &row.gflops, &row.gbps, &row.attainable_gflops, &row.pct_of_roof})
    field->reset();
  row.bound = {};
}

bool take_verdict(const Verdict& verdict, CaseResult& result) {
  result.verdict = verdict;
  if (std::isfinite(verdict.max_rel_error)) {  // a random result has no error
    result.row.max_rel_error = verdict.max_rel_error;
    result.row.tolerance = verdict.tolerance;
  }
  if (verdict.correct) return true;
  result.row.status = Outcome::incorrect;
  result.row.reason = verdict.reason;
  return false;
}

bool take_last_verdict(const char* phase, const Verdict& verdict, CaseResult& result) {
  if (verdict.correct) return true;
  result.row.status = Outcome::incorrect;
  result.row.reason = fmt::format("after the {} launches: {}", phase, verdict.reason);
  return false;
}

void take_samples(const Timing& timing, CaseResult& result) {
  RowSamples& samples = result.samples;
  samples.cold_us = timing.cold_us;
  samples.cold_batches = timing.cold_batches;
  samples.cold_mhz = timing.cold_mhz;
  samples.warm_us = timing.warm_us;
  samples.warm_batches = timing.warm_batches;
  samples.warm_mhz = timing.warm_mhz;
  samples.warm_serial_us = timing.warm_serial_us;
  samples.warm_serial_batches = timing.warm_serial_batches;
  samples.warm_serial_mhz = timing.warm_serial_mhz;
  samples.warm_edge_us = timing.warm_edge_us;
  samples.warm_serial_edge_us = timing.warm_serial_edge_us;
  write_times(timing, result.row);
}

void count_kernels(std::span<const KernelResources> kernels, RowSamples& samples) {
  for (const KernelResources& kernel : kernels) {
    const std::string name = short_kernel_name(kernel.name);
    const auto place = std::ranges::find(samples.kernels, name) - samples.kernels.begin();
    if (static_cast<std::size_t>(place) == samples.kernels.size()) {
      samples.kernels.push_back(name);
      samples.kernel_counts.push_back(0);
    }
    ++samples.kernel_counts[static_cast<std::size_t>(place)];
  }
}

}  // namespace noisefloor
