// What is counted of a case's launch beside its times: by the hardware, of its kernels, of the edges between them.
#pragma once

#include <memory>
#include <string>

#include "bench/counters/range_profiler.h"
#include "bench/measure/bound_case.h"
#include "bench/measure/case_result.h"
#include "bench/platform/platform.h"

namespace noisefloor {

enum class CounterMode { off, automatic, require };
const char* to_string(CounterMode mode);                  // "off", "auto", "require"
CounterMode parse_counter_mode(const std::string& text);  // of one of these

inline constexpr const char* kNotCollected = "not_collected";  // column counter_status of a case that nobody counts

// Hardware counters, where they can be had.
class CaseCounters {
 public:
  // Throws CountersUnavailable where they are required and cannot be had.
  CaseCounters(const Platform& platform, CounterMode mode);

  CounterMode mode() const { return mode_; }               // `off` where they cannot be had
  const std::string& status() const { return status_; }    // column counter_status of a case that has no other
  const std::string& message() const { return message_; }  // what to tell the user once: why they are missing

  // The profiler enabled once, from its first launch to the pass's end, which is most of what counting a row takes.
  // Nothing may be timed meanwhile.
  using Pass = std::unique_ptr<RangeProfiler>;
  // Of one cold launch, into the row's columns. Throws what the launch does, and CountersUnavailable where counters are
  // required; the next one may be counted all the same.
  void count(Pass& pass, Platform& platform, const Case& test_case, BoundCase& bound, SweepRow& row);

 private:
  CounterMode mode_;
  std::string status_, message_;
};

// What the kernels of one launch are and take. A driver that does not answer costs the columns, not the case.
void read_resources(Platform& platform, BoundCase& bound, CaseResult& result);
// Column edges, of the serial warm launches. A launch that cannot be captured twice costs the column, not the case.
void count_edges(Platform& platform, const Launch& launch, CaseResult& result);

}  // namespace noisefloor
