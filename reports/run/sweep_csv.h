// sweep.csv: one row per (op, problem, dtype, variant). The one place that knows its columns.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reports/run/case_id.h"

namespace noisefloor {

// What became of a case. Only `ok` carries a time.
enum class Outcome {
  ok,
  incorrect,
  cuda_error,
  unsupported_problem,
  unsupported_arch,
  not_built,
  out_of_memory,
  no_device,
  throttled
};

const char* to_string(Outcome outcome);
std::optional<Outcome> parse_outcome(const std::string& text);

// Units: microseconds, bytes, GFLOP/s, GB/s (1e9), percent, MHz. A number that was not measured is empty in the file.
struct SweepRow : CaseId {
  std::string kind, networks;
  Outcome status = Outcome::no_device;
  std::string reason, device, arch;
  std::optional<double> time_cold_us, time_cold_mad_us, time_warm_us;
  std::optional<long> samples;
  std::string stop;
  double flops = 0, bytes = 0;
  std::optional<double> gflops, gbps, ai, attainable_gflops, pct_of_roof;
  std::string bound;
  std::optional<double> dram_read_bytes, dram_write_bytes, l2_bytes, occupancy_pct, occupancy_limit_pct,
      tensor_pipe_pct;
  std::string counter_status;
  std::optional<long> registers, smem_bytes, spill_bytes, workspace_bytes;
  std::optional<double> prepare_us, sm_clock_mhz;
  std::string throttle;
  std::optional<double> max_rel_error, tolerance;
  std::string commit;

  std::string key() const { return op + "|" + problem + "|" + dtype + "|" + variant; }
};

// The header line and one row, RFC 4180 quoting, with line ends.
std::string sweep_csv_header();
std::string to_csv(const SweepRow& row);

// Reads a whole sweep.csv. A last line without its line end (the sweep was killed while writing it) is left out. Throws
// std::runtime_error naming file, line, column and value for anything else that is not a sweep row. `lines`, where
// given, gets each row's line.
std::vector<SweepRow> read_sweep_csv(const std::filesystem::path& file, std::vector<std::size_t>* lines = nullptr);

// "adm64-b32:10;sd15-b2:2" -> how often the problem occurs in a forward pass of each network. Throws on malformed text.
struct NetworkCount {
  std::string network;
  long count;
};
inline constexpr long kMaxNetworkCount = 1'000'000'000;  // far above any network; sums of them do not overflow
std::vector<NetworkCount> parse_networks(const std::string& text);

}  // namespace noisefloor
