#include "reports/run/sweep_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "reports/run/columns.h"
#include "reports/run/csv.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

constexpr std::pair<Outcome, const char*> kOutcomes[] = {
    {Outcome::ok, "ok"},
    {Outcome::incorrect, "incorrect"},
    {Outcome::cuda_error, "cuda_error"},
    {Outcome::unsupported_problem, "unsupported_problem"},
    {Outcome::unsupported_arch, "unsupported_arch"},
    {Outcome::not_built, "not_built"},
    {Outcome::out_of_memory, "out_of_memory"},
    {Outcome::no_device, "no_device"},
    {Outcome::throttled, "throttled"},
    {Outcome::implausible, "implausible"},
};

// What a later version may have added; with ours below kMaxCsvColumns.
constexpr std::size_t kMaxOthers = 128;

// Of a problem's text, far above any op's.
constexpr std::size_t kLongestName = 4096;

std::optional<std::size_t> place_of(const std::vector<std::string>& header, std::string_view name) {
  const auto found = std::find(header.begin(), header.end(), name);
  return found == header.end() ? std::nullopt : std::optional<std::size_t>(found - header.begin());
}

// The first column without which a row means nothing; null where they are all there.
const char* lacks(const std::vector<std::string>& header) {
  for (const SweepColumn& column : sweep_columns())
    if (column.is(ColumnInfo::kNeeded) && !place_of(header, column.name)) return column.name;
  return nullptr;
}

}  // namespace

const char* to_string(Outcome outcome) {
  for (const auto& [value, name] : kOutcomes)
    if (value == outcome) return name;
  return "?";
}

std::optional<Outcome> parse_outcome(const std::string& text) {
  for (const auto& [value, name] : kOutcomes)
    if (text == name) return value;
  return std::nullopt;
}

std::string sweep_csv_header(const std::vector<std::string>& others) {
  std::string line;
  for (const SweepColumn& column : sweep_columns()) line += (line.empty() ? "" : ",") + std::string(column.name);
  for (const std::string& name : others) line += "," + quote_csv(name);
  return line + "\n";
}

std::string to_csv(const SweepRow& row, const std::vector<std::string>& others) {
  std::string line;
  for (const SweepColumn& column : sweep_columns()) {
    if (&column != &sweep_columns().front()) line += ',';
    line += quote_csv(column.write(row));
  }
  for (const std::string& name : others) {
    const auto found = row.others.find(name);
    line += "," + (found == row.others.end() ? std::string() : quote_csv(found->second));
  }
  return line + "\n";
}

std::vector<std::string> other_columns(const std::vector<SweepRow>& rows) {
  std::set<std::string> names;
  for (const SweepRow& row : rows)
    for (const auto& [name, value] : row.others) names.insert(name);
  return {names.begin(), names.end()};
}

bool is_wrong(Outcome outcome) {
  return outcome == Outcome::incorrect || outcome == Outcome::cuda_error || outcome == Outcome::implausible;
}

bool is_failure(const SweepRow& row) {
  return is_wrong(row.status) && row.kind != "baseline";
}

bool of_pytorch(const SweepRow& row) {
  return row.variant.starts_with("torch_");
}

bool of_worker(const SweepRow& row) {
  return of_pytorch(row) || row.variant.starts_with("peer_");
}

std::vector<SweepRow> read_sweep_csv(const fs::path& file, std::vector<std::size_t>* lines) {
  CsvFile csv = read_csv(file, /*drop_incomplete=*/true);
  rename_old_columns(csv.header);
  if (const char* name = lacks(csv.header))
    throw csv.wrong(1, "no column '{}', without which a row means nothing", name);
  std::vector<std::pair<const SweepColumn*, std::size_t>> known;
  for (const SweepColumn& column : sweep_columns())
    if (const auto place = place_of(csv.header, column.name)) known.emplace_back(&column, *place);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < csv.header.size(); ++i)
    if (sweep_column(csv.header[i]) == nullptr) others.push_back(i);
  if (others.size() > kMaxOthers) throw csv.wrong(1, "over {} columns that are not known", kMaxOthers);
  for (const std::size_t place : others)
    if (std::any_of(csv.header[place].begin(), csv.header[place].end(), [](char c) { return c == '\n' || c == '\r'; }))
      throw csv.wrong(1, "the name of column {} has a line end", place + 1);
  std::vector<SweepRow> rows;
  rows.reserve(csv.lines.size());
  std::map<CaseId, std::size_t> seen;
  for (const CsvLine& line : csv.lines) {
    SweepRow row;
    for (const auto& [column, place] : known) {
      try {
        column->read(*column, row, line.fields[place]);
      } catch (const std::runtime_error& error) {
        throw csv.wrong(line.number, "column '{}': {}", column->name, error.what());
      }
    }
    for (const std::size_t place : others)
      if (rows.empty() || !line.fields[place].empty()) row.others[csv.header[place]] = line.fields[place];
    for (const auto& [name, part] : kCaseParts)
      if (const std::size_t size = (row.*part).size(); size > kLongestName)
        throw csv.wrong(line.number, "column '{}' has {} characters; at most {}", name, size, kLongestName);
    if (row.status == Outcome::ok && !row.time_cold_us)
      throw csv.wrong(line.number, "column 'time_cold_us': blank, but status is ok");
    const auto [found, is_new] = seen.try_emplace(row.case_id(), line.number);
    if (!is_new)
      throw csv.wrong(line.number, "the row of {} is there twice, first in line {}", row.name(), found->second);
    rows.push_back(std::move(row));
    if (lines != nullptr) lines->push_back(line.number);
  }
  return rows;
}

std::vector<NetworkCount> parse_networks(const std::string& text) {
  std::vector<NetworkCount> counts;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t colon = item.find(':');
    if (colon == std::string::npos || colon == 0) throw failure("'{}' is not network:count", item);
    const auto count = parse_number<long>(item.substr(colon + 1));
    if (!count) throw failure("'{}' is not a number", item.substr(colon + 1));
    if (*count < 1 || *count > kMaxNetworkCount)
      throw failure("'{}': the count is outside 1 to {}", item, kMaxNetworkCount);
    counts.push_back({item.substr(0, colon), *count});
    begin = end + 1;
  }
  return counts;
}

constexpr std::string_view kMemory = "memory:", kCompute = "compute:";

std::string Bound::text() const {
  if (by == By::nothing) return "";
  return fmt::format("{}{}", by == By::memory ? kMemory : kCompute, ceiling);
}

Bound Bound::parse(const std::string& text) {
  if (text.empty()) return {};
  if (text.starts_with(kMemory)) return {By::memory, text.substr(kMemory.size())};
  if (text.starts_with(kCompute)) return {By::compute, text.substr(kCompute.size())};
  throw failure("'{}' is neither {} nor {} with a ceiling's name", text, kMemory, kCompute);
}

double load_of(const std::vector<SweepRow>& rows) {
  std::vector<double> loads;
  for (const SweepRow& row : rows)
    if (row.load) loads.push_back(*row.load);
  return median(std::move(loads));
}

}  // namespace noisefloor
