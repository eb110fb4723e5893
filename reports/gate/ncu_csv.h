// What Nsight Compute says of launches: the CSV of `ncu --import REPORT --csv --page raw`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace noisefloor {

struct NcuLaunch {
  std::string kernel;  // as ncu names it
  std::string range;   // the text of its NVTX push/pop ranges; empty where the report has none
  double time_us = 0;
  double dram_read_bytes = 0, dram_write_bytes = 0;
  double occupancy_pct = 0;
  double sm_clock_mhz = 0;  // mean over the launch; 0 where the report has none
};

// The launches in the order of the file, in whatever unit it gives the values. Lines before the header that begin with
// "==" (ncu's own messages) are skipped. Throws std::runtime_error naming line and column for anything that is not such
// a file, lacks one of the first four metrics (older captures have no clock), or has a value that is not a number of a
// unit known for it.
std::vector<NcuLaunch> parse_ncu_csv(std::string_view text);
// The same of a file, whose name is then part of the message.
std::vector<NcuLaunch> read_ncu_csv(const std::filesystem::path& file);

}  // namespace noisefloor
