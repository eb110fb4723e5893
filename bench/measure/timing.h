// What the phases of a case's timing found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace noisefloor {

struct SweepRow;

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

struct Timing {
  std::vector<double> cold_us = {};
  std::vector<std::size_t> cold_batches = {};  // samples per batch, in order
  std::vector<double> cold_mhz = {};           // the clock behind each batch, NaN where unreadable; empty: no clock
  std::string stop = {};                       // why the cold phase ended
  std::vector<double> warm_us = {};
  std::vector<std::size_t> warm_batches = {};
  std::vector<double> warm_mhz = {};  // as cold_mhz
  std::string warm_stop = {};
  std::vector<double> warm_serial_us = {};  // empty where warm_us is of ordinary edges already
  std::vector<std::size_t> warm_serial_batches = {};
  std::vector<double> warm_serial_mhz = {};
  std::vector<double> warm_edge_us = {}, warm_serial_edge_us = {};  // right before those phases and behind them
  std::optional<std::uint64_t> throttle = {};  // the reasons of kClockThrottle that were seen, where somebody says
  double discarded_seconds = 0;                // spent on what was taken again
  Others others = {};

  bool throttled() const;  // by what disqualifies the times
};

// The row's columns that a timing fills, its flops and bytes given: `ok` with times, or `throttled` with none.
void write_times(const Timing& timing, SweepRow& row);

}  // namespace noisefloor
