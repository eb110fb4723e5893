#include "bench/ceilings/store.h"

#include <fmt/format.h>
// The library copies file names with strncpy, on purpose; GCC 12 warns of it once it is inlined here.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-truncation"
#include <libfccp/csv.h>
#pragma GCC diagnostic pop

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

std::string blank_or_number(double value) {
  return value > 0 ? fmt::format("{:.6g}", value) : std::string();
}

// `text` as a positive number; a blank is 0 where it may be.
double positive(const std::string& text, const char* column, const fs::path& file, unsigned line, bool may_be_blank) {
  if (text.empty() && may_be_blank) return 0;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0) || !std::isfinite(value))
    throw std::runtime_error(fmt::format("{}:{}: column '{}' must be a number above 0{}, not '{}'", file.string(), line,
                                         column, may_be_blank ? " or blank" : "", text));
  return value;
}

std::string letters_and_digits(const std::string& text) {
  std::string kept;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.';
    if (plain)
      kept += c;
    else if (!kept.empty() && kept.back() != '_')
      kept += '_';
  }
  return kept.empty() ? "none" : kept;
}

}  // namespace

void write_ceilings(const fs::path& file, const Ceilings& ceilings) {
  std::string text = "name,value,unit,datasheet,device,driver,sm_clock_mhz,commit\n";
  for (const Ceiling& row : ceilings.rows)
    text += fmt::format("{},{:.6g},{},{},{},{},{},{}\n", quote_csv(row.name), row.value, quote_csv(row.unit),
                        blank_or_number(row.datasheet), quote_csv(ceilings.device), quote_csv(ceilings.driver),
                        blank_or_number(row.sm_clock_mhz), quote_csv(ceilings.commit));
  write_atomically(file, text);
}

Ceilings read_ceilings(const fs::path& file) {
  Ceilings ceilings;
  try {
    using Reader = io::CSVReader<8, io::trim_chars<>, io::double_quote_escape<',', '"'>>;
    Reader reader(file.string());
    reader.read_header(io::ignore_extra_column | io::ignore_missing_column, "name", "value", "unit", "datasheet",
                       "device", "driver", "sm_clock_mhz", "commit");
    for (const char* needed : {"name", "value", "unit", "device"})
      if (!reader.has_column(needed))
        throw std::runtime_error(fmt::format("{}:1: no column '{}'", file.string(), needed));
    std::string name, value, unit, datasheet, device, driver, clock, commit;
    while (reader.read_row(name, value, unit, datasheet, device, driver, clock, commit)) {
      const unsigned line = reader.get_file_line();
      const auto fail = [&](const std::string& what) {
        throw std::runtime_error(fmt::format("{}:{}: {}", file.string(), line, what));
      };
      if (name.empty()) fail("column 'name' is empty");
      if (unit != "GB/s" && unit != "GFLOP/s") fail("column 'unit' must be GB/s or GFLOP/s, not '" + unit + "'");
      if (ceilings.find(name) != nullptr) fail("the ceiling '" + name + "' is there twice");
      if (ceilings.rows.empty()) {
        ceilings.device = device;
        ceilings.driver = driver;
        ceilings.commit = commit;
      } else if (device != ceilings.device || driver != ceilings.driver) {
        fail("another device or driver ('" + device + "', '" + driver + "') than the lines above");
      }
      ceilings.rows.push_back({name, positive(value, "value", file, line, false), unit,
                               positive(datasheet, "datasheet", file, line, true),
                               positive(clock, "sm_clock_mhz", file, line, true)});
    }
  } catch (const io::error::base& error) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), error.what()));
  }
  if (ceilings.rows.empty()) throw std::runtime_error(fmt::format("{}: holds no ceilings", file.string()));
  return ceilings;
}

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return fs::path(cache) / "noisefloor";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".cache" / "noisefloor";
  return {};
}

std::string cache_file_name(const DeviceIdentity& identity) {
  return fmt::format("ceilings-{}-{}-{}.csv", letters_and_digits(identity.name), letters_and_digits(identity.driver),
                     identity.max_clock_mhz);
}

Ceilings load_or_measure(int device, bool refresh, const std::string& commit, const CeilingsLog& log) {
  const DeviceIdentity identity = device == kHostDevice ? host_identity() : gpu_identity(device);
  const fs::path folder = cache_folder();
  const fs::path file = folder / cache_file_name(identity);
  std::error_code ignored;
  if (!refresh && !folder.empty() && fs::exists(file, ignored)) {
    try {
      Ceilings cached = read_ceilings(file);
      if (cached.device != identity.name || cached.driver != identity.driver)
        throw std::runtime_error(fmt::format("{}: holds '{}', not '{}'", file.string(), cached.device, identity.name));
      cached.memory();  // a cache without the two ceilings that every roofline needs is no cache
      cached.compute(Pipe::fma, DType::fp32);
      return cached;
    } catch (const std::exception& error) {
      log(fmt::format("warning: cached ceilings are not usable and are measured again: {}", error.what()));
    }
  }
  log(fmt::format("measuring the ceilings of {} (once; cached after that)", identity.name));
  Ceilings measured = device == kHostDevice ? measure_host_ceilings() : measure_gpu_ceilings(device);
  measured.commit = commit;
  try {
    if (folder.empty()) throw std::runtime_error("neither XDG_CACHE_HOME nor HOME is set");
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw std::runtime_error(fmt::format("{}: {}", folder.string(), error.message()));
    write_ceilings(file, measured);
  } catch (const std::exception& error) {
    log(fmt::format("warning: ceilings are not cached: {}", error.what()));
  }
  return measured;
}

}  // namespace noisefloor
