// A case's row beside its times: what it is of, why it cannot run here, what was counted, its place under the roof.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "bench/measure/suite.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

struct Ceilings;
struct KernelResources;
struct PlatformDescription;

// With what is known before it runs.
SweepRow blank_row(const Case& test_case, const PlatformDescription& description, const std::string& arch);

// The row of a case that cannot run here, without running it: unsupported_arch, not_built, unsupported_problem or
// no_device.
std::optional<SweepRow> refused(const Case& test_case, const PlatformDescription& description, const std::string& arch);

// What was counted in one launch, into the columns of these names. Of a problem whose compulsory bytes fit into L2 what
// DRAM moves is left out, and counter_status says so: it would be what L2 chose to keep, not what the op does.
void take_counters(const std::map<std::string, double>& values, std::size_t l2_bytes, SweepRow& row);

// The least that a launch of it can take, in seconds, by measured ceilings. Throws std::out_of_range where one
// is missing.
double seconds_by_roof(const Case& test_case, const Ceilings& ceilings);

// What the kernel that stands for the launch takes.
void take_resources(const KernelResources& kernel, SweepRow& row);

// With a reason where it exceeds 100 %.
void place_under_roof(const Case& test_case, const Ceilings& ceilings, std::size_t cache_bytes, SweepRow& row);

// What lets a row exceed 100 % of its roof. `written_bytes`: the outputs', once.
std::string why_above_roof(const Cost& cost, double written_bytes, bool memory_bound, std::size_t cache_bytes);

}  // namespace noisefloor
