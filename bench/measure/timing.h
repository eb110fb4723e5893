// What the phases of a case's timing found, and when one has found enough.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "reports/run/run_files.h"

namespace noisefloor {

double steady_seconds();  // that never go back

struct StoppingRule {
  double relative_half_width = 0.005;  // of the median's 95 % confidence interval
  std::size_t minimum_samples = 20;
  std::size_t maximum_samples = 2000;
  double wall_seconds = 1.0;

  // A median of fewer samples says nothing of noise.
  static constexpr std::size_t kFewest = 5;

  // "converged", "max_samples" or "time_cap"; nothing while sampling should go on, and never before kFewest samples.
  std::optional<const char*> verdict(std::span<const double> samples, double elapsed_seconds) const;
};

// Whether a clock was held down by what the kernel has no part in.
bool disqualifies(std::optional<std::uint64_t> clock_event_reasons);

// What other programs did to the samples, where somebody says.
struct Others {
  std::size_t waited = 0, judged = 0;  // samples that were dropped because threads waited for a core, of all
  bool in_the_way = false;             // a phase had too few left
  double load_sum = 0;
  std::size_t load_readings = 0;

  std::optional<double> load() const;        // threads that could run, on average
  std::optional<double> waited_pct() const;  // of the samples
};

// The samples, but for the names of kernels.
struct Timing : RowSamples {
  std::string stop = {}, warm_stop = {};       // why the cold and the warm phase ended
  std::optional<std::uint64_t> throttle = {};  // the reasons of kClockThrottle that were seen, where somebody says
  double discarded_seconds = 0;                // spent on what was taken again
  Others others = {};

  bool throttled() const { return others.in_the_way || disqualifies(throttle); }  // by what disqualifies the times
};

// The row's columns that a timing fills, its flops and bytes given: `ok` with times, or `throttled` with none.
void write_times(const Timing& timing, SweepRow& row);

}  // namespace noisefloor
