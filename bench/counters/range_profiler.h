// Hardware counters of one launch, by CUPTI's range profiler with user replay.
//
// A pass collects what fits in the chip's counters at once, so the launch is repeated as often as there are passes.
// CUPTI may slow what runs while it is enabled: never time anything while an object of this class is alive. What does
// not depend on being enabled is made for the first object of a process and used by the later ones.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bench/counters/counter_status.h"

namespace noisefloor {

struct Metric {
  const char* name;   // ours
  const char* cupti;  // the chip's: base counter, rollup and submetric, as ncu spells them
};

// Those that fill a row: the column of that name (reports/run/columns.def). The bytes that DRAM and L2 move are counted
// there, so they include the write-back of dirty lines that a launch finds in L2; those through L2 are requests of SMs,
// fills, write-backs, and traffic between its partitions.
inline constexpr std::array kRowMetrics = {
    Metric{"dram_read_bytes", "dram__bytes_read.sum"},
    Metric{"dram_write_bytes", "dram__bytes_write.sum"},
    Metric{"l2_bytes", "lts__t_bytes.sum"},
    Metric{"occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"},
    Metric{"tensor_pipe_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"},
};

class RangeProfiler {
 public:
  virtual ~RangeProfiler() = default;  // disables profiling on the context

  // For every pass: before_pass(pass) outside the counted range (flush L2, restore inputs that the launch overwrites),
  // then a device synchronisation, then launch() inside the range, then another synchronisation. Returns Metric::name
  // -> value. Throws CountersUnavailable when CUPTI fails or drops the range, and whatever the two callables throw.
  virtual std::map<std::string, double> measure(const std::function<void(int pass)>& before_pass,
                                                const std::function<void()>& launch) = 0;
};

// Prepares the collection of a row's metrics on the current CUDA device (its primary context is created if it is not
// there yet). Throws CountersUnavailable: no CUPTI in this build, no permission, another profiler at work, a device
// that cannot be counted, a metric that the chip does not have (named).
std::unique_ptr<RangeProfiler> open_range_profiler();

// Enables a profiler on the current device and lets it go: what a row's counter_status will be, and why. Really asks
// each time; what it makes on the way, the rows use.
struct CounterProbe {
  CounterStatus status = CounterStatus::ok;
  std::string message;  // empty when ok
};
CounterProbe probe_counters();

// "13.0.1", of the CUPTI that is opened here; empty where there is none.
std::string cupti_version();

}  // namespace noisefloor
