#include "reports/gate/crosscheck.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "reports/gate/compare.h"

namespace noisefloor {

namespace {

using Verdict = CrosscheckLine::Verdict;

void require_same_case(const SweepRow& row, const std::vector<NcuLaunch>& launches) {
  const std::string name = row.name();
  for (const NcuLaunch& launch : launches)
    if (launch.range.find(":" + name + ":") == std::string::npos)
      throw std::runtime_error(fmt::format(
          "the report's kernel '{}' {}, not in that of {}", launch.kernel.substr(0, 60),
          launch.range.empty() ? "is in no NVTX range (was ncu given --nvtx?)" : "is in the range " + launch.range,
          name));
}

// Within `limit_pct` of theirs, or `slack` of it in the line's own unit.
CrosscheckLine relative(const char* name, const char* unit, std::optional<double> ours, double theirs, double limit_pct,
                        double slack, const std::string& why_missing) {
  CrosscheckLine line{name, unit, ours, theirs, "", "", Verdict::not_judged};
  if (!ours) {
    line.limit = why_missing;
    return line;
  }
  const double pct = 100 * (*ours - theirs) / theirs;
  if (theirs > 0) line.difference = fmt::format("{:+.1f} %", pct);
  line.limit = slack > 0 ? fmt::format("{:g} % or {:g} {}", limit_pct, slack, unit) : fmt::format("{:g} %", limit_pct);
  const bool agrees = std::abs(pct) <= limit_pct || std::abs(*ours - theirs) <= slack;
  line.verdict = agrees ? Verdict::agrees : Verdict::differs;
  return line;
}

// Mean by time; 0 where a kernel has no clock.
double mean_clock_mhz(const std::vector<NcuLaunch>& launches, double time_us) {
  double cycles = 0;
  for (const NcuLaunch& launch : launches) {
    if (!(launch.sm_clock_mhz > 0) && launch.time_us > 0) return 0;
    cycles += launch.sm_clock_mhz * launch.time_us;
  }
  return cycles / time_us;
}

// What a launch that computes takes is a number of cycles: its times are compared at equal clocks. Memory has a clock
// of its own.
CrosscheckLine time_line(const SweepRow& row, double ncu_us, std::optional<double> ours_mhz, double ncu_mhz,
                         const CrosscheckLimits& limits) {
  const double raw_us = *row.time_cold_us;
  CrosscheckLine line = relative("time", "us", raw_us, ncu_us, limits.time_pct, 0, "");
  if (ncu_us < limits.shortest_us) {
    line.verdict = Verdict::not_judged;
    line.limit = fmt::format("not judged below {:g} us", limits.shortest_us);
  } else if (row.bound.by == Bound::By::nothing) {
    line.limit += ", raw: what bounds the row is not known";
  } else if (row.bound.by == Bound::By::memory) {
    line.limit += ", raw: not bound by compute";
  } else if (!(ncu_mhz > 0)) {
    line.limit += ", raw: the report has no SM clock";
  } else if (!ours_mhz) {
    line.limit += ", raw: no SM clock during the row's launches";
  } else if (std::abs(*ours_mhz - ncu_mhz) <= limits.clock_pct / 100 * ncu_mhz) {
    line.limit += ", raw: the clocks are equal";
  } else {
    const double equal_us = raw_us * *ours_mhz / ncu_mhz;
    const std::string raw = line.difference;
    line = relative("time", "us", equal_us, ncu_us, limits.time_pct, 0, "");
    line.ours = raw_us;
    line.limit += fmt::format(" at equal clocks: {:.2f} x {:.0f} / {:.0f} MHz = {:.2f} us (raw {})", raw_us, *ours_mhz,
                              ncu_mhz, equal_us, raw);
  }
  return line;
}

CrosscheckLine clock_line(const SweepRow& row, std::optional<double> ours_mhz, double ncu_mhz) {
  CrosscheckLine line{"SM clock", "MHz", ours_mhz, {}, "", "", Verdict::not_judged};
  if (ncu_mhz > 0) line.theirs = ncu_mhz;
  if (line.ours && line.theirs) line.difference = fmt::format("{:+.1f} %", 100 * (*ours_mhz - ncu_mhz) / ncu_mhz);
  line.limit = "during launches";
  if (row.sm_clock_mhz) line.limit += fmt::format("; between them the row has {:.0f}", *row.sm_clock_mhz);
  return line;
}

}  // namespace

std::vector<CrosscheckLine> crosscheck(const SweepRow& row, const std::vector<NcuLaunch>& launches,
                                       std::optional<double> launch_mhz, const CrosscheckLimits& limits) {
  if (row.status != Outcome::ok)
    throw std::runtime_error(fmt::format("the row of {} is {}{}: there is nothing to compare", row.name(),
                                         to_string(row.status), row.reason.empty() ? "" : " (" + row.reason + ")"));
  require_same_case(row, launches);
  NcuLaunch sum;
  for (const NcuLaunch& launch : launches) {
    sum.time_us += launch.time_us;
    sum.dram_read_bytes += launch.dram_read_bytes;
    sum.dram_write_bytes += launch.dram_write_bytes;
    sum.occupancy_pct += launch.occupancy_pct * launch.time_us;
  }
  if (!(sum.time_us > 0)) throw std::runtime_error("the report gives its kernels no time");
  sum.occupancy_pct /= sum.time_us;

  constexpr double kMega = 1e6;
  const std::string no_counters = "the row has none: " + row.counter_status;
  std::vector<CrosscheckLine> lines;
  const double ncu_mhz = mean_clock_mhz(launches, sum.time_us);
  lines.push_back(time_line(row, sum.time_us, launch_mhz, ncu_mhz, limits));
  lines.push_back(clock_line(row, launch_mhz, ncu_mhz));
  const auto mega = [](std::optional<double> bytes) { return bytes ? std::optional(*bytes / kMega) : std::nullopt; };
  lines.push_back(relative("DRAM read", "MB", mega(row.dram_read_bytes), sum.dram_read_bytes / kMega, limits.bytes_pct,
                           limits.bytes / kMega, no_counters));
  // What is still dirty in L2 when a launch ends is written later, or not at all: that part of the writes is no
  // property of the launch, so that they are judged together with the reads.
  lines.push_back(
      relative("DRAM written", "MB", mega(row.dram_write_bytes), sum.dram_write_bytes / kMega, 0, 0, no_counters));
  lines.back().verdict = Verdict::not_judged;
  lines.back().limit = row.dram_write_bytes ? "judged with the reads" : no_counters;
  std::optional<double> moved;
  if (row.dram_read_bytes && row.dram_write_bytes) moved = *row.dram_read_bytes + *row.dram_write_bytes;
  lines.push_back(relative("DRAM read + written", "MB", mega(moved),
                           (sum.dram_read_bytes + sum.dram_write_bytes) / kMega, limits.bytes_pct, limits.bytes / kMega,
                           no_counters));

  CrosscheckLine occupancy{"occupancy", "%",         row.occupancy_pct,  sum.occupancy_pct,
                           "",          no_counters, Verdict::not_judged};
  if (row.occupancy_pct) {
    const double points = *row.occupancy_pct - sum.occupancy_pct;
    occupancy.difference = fmt::format("{:+.1f} points", points);
    occupancy.limit = fmt::format("{:g} points", limits.occupancy_points);
    occupancy.verdict = std::abs(points) <= limits.occupancy_points ? Verdict::agrees : Verdict::differs;
    // A library that tunes in each process may run another of its nearly equally fast kernels under ncu.
    if (row.kind == "baseline") {
      occupancy.verdict = Verdict::not_judged;
      occupancy.limit = "a baseline's library chooses its kernel anew in each process";
    }
  }
  lines.push_back(occupancy);
  return lines;
}

std::string crosscheck_table(const std::vector<CrosscheckLine>& lines) {
  std::string text =
      fmt::format("{:<22} {:>12} {:>12} {:>14}  {:<10} {}\n", "", "harness", "ncu", "difference", "verdict", "limit");
  const auto cell = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.2f}", *value) : std::string("-");
  };
  for (const CrosscheckLine& line : lines)
    text += fmt::format("{:<22} {:>12} {:>12} {:>14}  {:<10} {}\n", line.name + ", " + line.unit, cell(line.ours),
                        cell(line.theirs), line.difference.empty() ? "-" : line.difference,
                        line.verdict == Verdict::agrees    ? "agrees"
                        : line.verdict == Verdict::differs ? "DIFFERS"
                                                           : "-",
                        line.limit);
  return text;
}

}  // namespace noisefloor
