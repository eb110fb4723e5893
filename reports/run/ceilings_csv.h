// ceilings.csv: the measured rates of one device, under which a roofline is drawn.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace noisefloor {

// Names, GPU: dram_copy (bytes read plus bytes written), dram_read, l2, fma_fp32, tensor_bf16, tensor_fp16,
// tensor_tf32, tensor_fp8; those that the device has. Host: dram_copy, dram_read, fma_fp32.
struct Ceiling {
  std::string name;
  double value = 0;
  std::string unit;                 // "GB/s" or "GFLOP/s" (a multiply-add is two)
  double datasheet = 0;             // in the same unit; 0: not known
  double sm_clock_mhz = 0;          // while it was measured; 0 on the host
  std::optional<double> load = {};  // on the host: threads of other programs that could run meanwhile, on average
};

struct CeilingTable {
  std::string device;  // as the driver, or /proc/cpuinfo, names it
  std::string driver;  // "580.95.05"; on the host, the vector instructions of this build ("avx2")
  std::string commit;  // of the program that measured
  std::vector<Ceiling> rows;

  const Ceiling* find(std::string_view name) const;  // null when the device has no such ceiling
  std::optional<double> rate(std::string_view name) const;
};

struct SweepRow;
// Fills the columns of the roof of a row that has `ai` and `gflops`.
void place_under_roof(SweepRow& row, const Ceiling& memory, const Ceiling& compute);

// Columns: name,value,unit,datasheet,device,driver,sm_clock_mhz,commit,load; an unknown datasheet, clock or load is
// blank.
std::string ceilings_csv(const CeilingTable& ceilings);
// Throws std::runtime_error with the file's name when it cannot be written (it is then left as it was).
void write_ceilings(const std::filesystem::path& file, const CeilingTable& ceilings);

// Columns are found by name; a file needs name, value and unit. Throws std::runtime_error with file, line and column
// when it cannot be read or holds anything but ceilings of one device.
CeilingTable read_ceilings(const std::filesystem::path& file);

}  // namespace noisefloor
