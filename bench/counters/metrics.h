// The hardware counters that a row carries, keyed by our names, and a check of their CUPTI names that needs no GPU.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace noisefloor {

struct Metric {
  const char* name;     // ours: a column of sweep.csv for those of row_metrics()
  const char* cupti;    // the chip's: base counter, rollup and submetric, as ncu spells them
  const char* unit;     // "B", "%", "ns", "1"
  const char* meaning;  // one line, for `noisefloor devices`
};

std::span<const Metric> metrics();      // every metric that may be asked for, by name
std::span<const Metric> row_metrics();  // those that are columns of sweep.csv

// Throws InvalidInput, with the nearest known name, on an unknown one.
const Metric& metric(std::string_view name);

// CUPTI's names of the chips that every metric is checked for: Turing, Ampere, Ada, Hopper, Blackwell.
std::span<const char* const> checked_chips();

struct MetricCheck {
  std::vector<std::string> unknown;  // CUPTI names that the chip does not have
  std::size_t passes = 0;            // launches that one collection of all known ones takes
};

// Asks CUPTI's host library, one name at a time (one bad name would fail a whole set without being named). Needs no GPU
// and no driver. Throws CountersUnavailable where CUPTI is not in this build,
// not on this machine, or does not know the chip.
MetricCheck check_metrics(const std::string& chip, std::span<const Metric> wanted);

}  // namespace noisefloor
