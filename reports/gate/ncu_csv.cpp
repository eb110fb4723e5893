#include "reports/gate/ncu_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <stdexcept>

#include "reports/run/csv.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
// ncu's names, old and new; microseconds, bytes, percent and MHz are 1.
constexpr std::array kTimeUnits = {Unit{"ns", 1e-3},     Unit{"us", 1},         Unit{"ms", 1e3},
                                   Unit{"s", 1e6},       Unit{"nsecond", 1e-3}, Unit{"usecond", 1},
                                   Unit{"msecond", 1e3}, Unit{"second", 1e6}};
constexpr std::array kByteUnits = {Unit{"byte", 1}, Unit{"Kbyte", 1e3}, Unit{"Mbyte", 1e6}, Unit{"Gbyte", 1e9},
                                   Unit{"Tbyte", 1e12}};
constexpr std::array kPercent = {Unit{"%", 1}};
constexpr std::array kClockUnits = {
    Unit{"hz", 1e-6},           Unit{"Khz", 1e-3},           Unit{"Mhz", 1},           Unit{"Ghz", 1e3},
    Unit{"Hz", 1e-6},           Unit{"KHz", 1e-3},           Unit{"MHz", 1},           Unit{"GHz", 1e3},
    Unit{"cycle/second", 1e-6}, Unit{"cycle/msecond", 1e-3}, Unit{"cycle/usecond", 1}, Unit{"cycle/nsecond", 1e3},
    Unit{"cycle/s", 1e-6},      Unit{"cycle/ms", 1e-3},      Unit{"cycle/us", 1},      Unit{"cycle/ns", 1e3}};

// A capture with sections has some hundreds: one for each metric.
constexpr std::size_t kMostColumns = 2048;

struct Wanted {
  const char* column;
  std::span<const Unit> units;
  double NcuLaunch::*value;
  bool required = true;
};
constexpr std::array kWanted = {
    Wanted{"gpu__time_duration.sum", kTimeUnits, &NcuLaunch::time_us},
    Wanted{"dram__bytes_read.sum", kByteUnits, &NcuLaunch::dram_read_bytes},
    Wanted{"dram__bytes_write.sum", kByteUnits, &NcuLaunch::dram_write_bytes},
    Wanted{"sm__warps_active.avg.pct_of_peak_sustained_active", kPercent, &NcuLaunch::occupancy_pct},
    Wanted{"gpc__cycles_elapsed.avg.per_second", kClockUnits, &NcuLaunch::sm_clock_mhz, false},
};

// "1,234,567.89": groups of three digits, as ncu writes numbers, or no groups at all.
std::optional<double> parse_number(std::string_view text) {
  std::string plain;
  const std::size_t point = std::min(text.find('.'), text.size());
  const bool grouped = text.find(',') != std::string_view::npos;
  if (grouped && point % 4 == 0) return std::nullopt;  // no group before the first comma, or one of four digits
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool comma_here = grouped && i < point && i > 0 && (point - i) % 4 == 0;
    if (comma_here != (text[i] == ',')) return std::nullopt;
    if (text[i] != ',') plain += text[i];
  }
  double value = 0;
  const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (result.ec != std::errc() || result.ptr != plain.data() + plain.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}

std::string shown(const std::string& text) {
  constexpr std::size_t kMost = 80;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

// Of the line that is read now.
template <class... Arguments>
[[noreturn]] void refuse(std::size_t line, fmt::format_string<Arguments...> form, Arguments&&... arguments) {
  throw std::runtime_error(fmt::format("{}: {}", line, fmt::format(form, std::forward<Arguments>(arguments)...)));
}

struct Columns {
  std::size_t count = 0, kernel = 0;
  std::optional<std::size_t> range;
  std::array<std::optional<std::size_t>, kWanted.size()> metrics{};
  std::array<double, kWanted.size()> factors{};
};

Columns read_header(const std::vector<std::string>& header, std::size_t line) {
  Columns columns;
  columns.count = header.size();
  const auto find = [&](const std::string& name) {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end()) refuse(line, "no column '{}'; is this ncu's --csv --page raw?", name);
    if (std::find(found + 1, header.end(), name) != header.end()) refuse(line, "two columns '{}'", name);
    return static_cast<std::size_t>(found - header.begin());
  };
  find("ID");
  columns.kernel = find("Kernel Name");
  for (std::size_t i = 0; i < kWanted.size(); ++i)
    if (kWanted[i].required || std::find(header.begin(), header.end(), kWanted[i].column) != header.end())
      columns.metrics[i] = find(kWanted[i].column);
  for (std::size_t i = 0; i < header.size() && !columns.range; ++i)
    if (header[i].find("Push/Pop_Range") != std::string::npos) columns.range = i;
  return columns;
}

void read_units(const std::vector<std::string>& units, std::size_t line, Columns& columns) {
  if (!units[columns.kernel].empty()) refuse(line, "the second line should give the columns' units");
  for (std::size_t i = 0; i < kWanted.size(); ++i) {
    if (!columns.metrics[i]) continue;
    const std::string& name = units[*columns.metrics[i]];
    const auto found = std::find_if(kWanted[i].units.begin(), kWanted[i].units.end(),
                                    [&](const Unit& unit) { return unit.name == name; });
    if (found == kWanted[i].units.end()) refuse(line, "column '{}': unknown unit '{}'", kWanted[i].column, shown(name));
    columns.factors[i] = found->factor;
  }
}

NcuLaunch read_launch(const std::vector<std::string>& fields, std::size_t line, const Columns& columns) {
  NcuLaunch launch;
  launch.kernel = fields[columns.kernel];
  if (columns.range) launch.range = fields[*columns.range];
  for (std::size_t i = 0; i < kWanted.size(); ++i) {
    if (!columns.metrics[i]) continue;
    const std::string& text = fields[*columns.metrics[i]];
    const auto value = parse_number(text);
    if (!value || !std::isfinite(*value * columns.factors[i]))
      refuse(line, "column '{}': '{}' is not a number from 0", kWanted[i].column, shown(text));
    launch.*kWanted[i].value = *value * columns.factors[i];
  }
  return launch;
}

}  // namespace

std::vector<NcuLaunch> parse_ncu_csv(std::string_view text) {
  std::vector<NcuLaunch> launches;
  std::optional<Columns> columns;
  bool has_units = false;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (!columns && line.substr(0, 2) == "==")) continue;
    std::vector<std::string> fields;
    try {
      fields = split_csv_line(line, kMostColumns);
    } catch (const std::runtime_error& error) {
      refuse(number, "{}", error.what());
    }
    if (!columns) {
      columns = read_header(fields, number);
      continue;
    }
    if (fields.size() != columns->count) refuse(number, "{} columns, the header has {}", fields.size(), columns->count);
    if (!has_units) {
      read_units(fields, number, *columns);
      has_units = true;
      continue;
    }
    launches.push_back(read_launch(fields, number, *columns));
  }
  if (!columns) refuse(number, "no header line; is this ncu's --csv --page raw?");
  if (launches.empty()) refuse(number, "the report has no launch");
  return launches;
}

std::vector<NcuLaunch> read_ncu_csv(const std::filesystem::path& file) {
  const std::string text = read_whole_file(file);
  try {
    return parse_ncu_csv(text);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}:{}", file.string(), error.what()));
  }
}

}  // namespace noisefloor
