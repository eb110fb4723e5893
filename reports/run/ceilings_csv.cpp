#include "reports/run/ceilings_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "reports/run/csv.h"
#include "reports/run/files.h"

#define CSV_IO_NO_THREAD  // a file of ten lines
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-truncation"  // of the file's name in its errors, on purpose
#include <libfccp/csv.h>
#pragma GCC diagnostic pop

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

void write_ceilings(const std::filesystem::path& file, const CeilingTable& ceilings) {
  std::string text = "name,value,unit,datasheet,device,driver,sm_clock_mhz,commit,load\n";
  for (const Ceiling& row : ceilings.rows)
    text += fmt::format("{},{:.6g},{},{},{},{},{},{},{}\n", quote_csv(row.name), row.value, quote_csv(row.unit),
                        blank_or_number(row.datasheet), quote_csv(ceilings.device), quote_csv(ceilings.driver),
                        blank_or_number(row.sm_clock_mhz), quote_csv(ceilings.commit),
                        row.load ? fmt::format("{:.3g}", *row.load) : "");
  write_atomically(file, text);
}

CeilingTable read_ceilings(const std::filesystem::path& file) {
  CeilingTable ceilings;
  const std::string text = read_whole_file(file);
  try {
    io::CSVReader<9, io::trim_chars<>, io::double_quote_escape<',', '"'>> reader(file.string(), text.data(),
                                                                                 text.data() + text.size());
    reader.read_header(io::ignore_missing_column | io::ignore_extra_column, "name", "value", "unit", "datasheet",
                       "device", "driver", "sm_clock_mhz", "commit", "load");
    for (const char* needed : {"name", "value", "unit"})
      if (!reader.has_column(needed))
        throw std::runtime_error(fmt::format("{}:1: needs a column '{}'", file.string(), needed));
    while (true) {
      std::string name, value, unit, datasheet, device, driver, clock, commit,
          load;  // blank where the column is missing
      if (!reader.read_row(name, value, unit, datasheet, device, driver, clock, commit, load)) break;
      const auto fail = [&](const std::string& what) {
        throw std::runtime_error(fmt::format("{}:{}: {}", file.string(), reader.get_file_line(), what));
      };
      const auto positive = [&](const char* column, const std::string& number, bool may_be_blank) {
        double parsed = 0;
        if (number.empty() && may_be_blank) return parsed;
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), parsed);
        if (error != std::errc{} || end != number.data() + number.size() || !(parsed > 0) || !std::isfinite(parsed))
          fail(fmt::format("column '{}' must be a number above 0{}, not '{}'", column, may_be_blank ? " or blank" : "",
                           number));
        return parsed;
      };
      Ceiling row{name, positive("value", value, false), unit, positive("datasheet", datasheet, true),
                  positive("sm_clock_mhz", clock, true)};
      if (load == "0")
        row.load = 0;
      else if (!load.empty())
        row.load = positive("load", load, true);
      if (row.name.empty()) fail("column 'name' is empty");
      if (row.unit != "GB/s" && row.unit != "GFLOP/s")
        fail("column 'unit' must be GB/s or GFLOP/s, not '" + row.unit + "'");
      if (ceilings.find(row.name) != nullptr) fail("the ceiling '" + row.name + "' is there twice");
      if (ceilings.rows.empty()) {
        ceilings.device = device;
        ceilings.driver = driver;
        ceilings.commit = commit;
      } else if (device != ceilings.device || driver != ceilings.driver) {
        fail("another device or driver ('" + device + "', '" + driver + "') than the lines above");
      }
      ceilings.rows.push_back(std::move(row));
    }
  } catch (const io::error::base& error) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), error.what()));
  }
  if (ceilings.rows.empty()) throw std::runtime_error(fmt::format("{}: holds no ceilings", file.string()));
  return ceilings;
}

}  // namespace noisefloor
