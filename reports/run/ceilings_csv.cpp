#include "reports/run/ceilings_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

std::string blank_or_number(double value) {
  return value > 0 ? fmt::format("{:.6g}", value) : std::string();
}

}  // namespace

const Ceiling* CeilingTable::find(std::string_view name) const {
  const auto found = std::ranges::find(rows, name, &Ceiling::name);
  return found == rows.end() ? nullptr : &*found;
}

std::optional<double> CeilingTable::rate(std::string_view name) const {
  const Ceiling* const found = find(name);
  return found == nullptr ? std::nullopt : std::optional(found->value);
}

void place_under_roof(SweepRow& row, const Ceiling& memory, const Ceiling& compute) {
  const double by_memory = *row.ai * memory.value;
  row.attainable_gflops = std::min(by_memory, compute.value);
  row.pct_of_roof = 100 * *row.gflops / *row.attainable_gflops;
  row.bound = {by_memory < compute.value ? Bound::By::memory : Bound::By::compute, compute.name};
}

std::string ceilings_csv(const CeilingTable& ceilings) {
  std::string text = "name,value,unit,datasheet,device,driver,sm_clock_mhz,commit,load\n";
  for (const Ceiling& row : ceilings.rows)
    text += csv_row(row.name, fmt::format("{:.6g}", row.value), row.unit, blank_or_number(row.datasheet),
                    ceilings.device, ceilings.driver, blank_or_number(row.sm_clock_mhz), ceilings.commit,
                    row.load ? fmt::format("{:.3g}", *row.load) : "");
  return text;
}

void write_ceilings(const fs::path& file, const CeilingTable& ceilings) {
  write_atomically(file, ceilings_csv(ceilings));
}

CeilingTable read_ceilings(const fs::path& file) {
  const CsvFile csv = read_csv(file);
  for (const char* needed : {"name", "value", "unit"})
    if (std::ranges::find(csv.header, needed) == csv.header.end()) throw csv.wrong(1, "needs a column '{}'", needed);
  CeilingTable ceilings;
  for (const CsvLine& line : csv.lines) {
    const auto fail = [&](const std::string& what) { throw csv.wrong(line.number, "{}", what); };
    const auto text = [&](std::string_view column) {  // blank where it is missing
      const auto place = std::ranges::find(csv.header, column) - csv.header.begin();
      std::string field = place < std::ssize(csv.header) ? line.fields[static_cast<std::size_t>(place)] : std::string();
      const auto first = field.find_first_not_of(" \t");  // of files that were written by hand
      return first == std::string::npos ? "" : field.substr(first, field.find_last_not_of(" \t") + 1 - first);
    };
    const auto positive = [&](const char* column, bool may_be_blank) {
      const std::string number = text(column);
      if (number.empty() && may_be_blank) return 0.0;
      const double parsed = parse_number<double>(number).value_or(0);
      if (!(parsed > 0) || !std::isfinite(parsed))
        fail(fmt::format("column '{}' must be a number above 0{}, not '{}'", column, may_be_blank ? " or blank" : "",
                         number));
      return parsed;
    };
    Ceiling row{text("name"), positive("value", false), text("unit"), positive("datasheet", true),
                positive("sm_clock_mhz", true)};
    if (const std::string load = text("load"); !load.empty()) row.load = load == "0" ? 0 : positive("load", true);
    if (row.name.empty()) fail("column 'name' is empty");
    if (row.unit != "GB/s" && row.unit != "GFLOP/s")
      fail("column 'unit' must be GB/s or GFLOP/s, not '" + row.unit + "'");
    if (ceilings.find(row.name) != nullptr) fail("the ceiling '" + row.name + "' is there twice");
    const std::string device = text("device"), driver = text("driver");
    if (ceilings.rows.empty()) {
      ceilings.device = device;
      ceilings.driver = driver;
      ceilings.commit = text("commit");
    } else if (device != ceilings.device || driver != ceilings.driver) {
      fail("another device or driver ('" + device + "', '" + driver + "') than the lines above");
    }
    ceilings.rows.push_back(std::move(row));
  }
  if (ceilings.rows.empty()) throw failure("{}: holds no ceilings", file.string());
  return ceilings;
}

}  // namespace noisefloor
