#include "reports/run/sweep_csv.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "reports/run/csv.h"

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
};

template <class Number>
Number parse_number(const std::string& text) {
  Number value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw std::runtime_error(fmt::format("'{}' is not a number", text));
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(value)) throw std::runtime_error(fmt::format("'{}' is not a finite number", text));
  return value;
}

struct Column {
  const char* name;
  std::function<std::string(const SweepRow&)> write;
  std::function<void(SweepRow&, const std::string&)> read;
};

Column column(const char* name, std::string SweepRow::*member) {
  return {name, [member](const SweepRow& row) { return quote_csv(row.*member); },
          [member](SweepRow& row, const std::string& text) { row.*member = text; }};
}
Column column(const char* name, double SweepRow::*member) {
  return {name, [member](const SweepRow& row) { return fmt::format("{}", row.*member); },
          [member](SweepRow& row, const std::string& text) { row.*member = parse_number<double>(text); }};
}
Column column(const char* name, std::optional<double> SweepRow::*member) {
  return {name,
          [member](const SweepRow& row) {
            return row.*member && std::isfinite(*(row.*member)) ? fmt::format("{:.6g}", *(row.*member)) : std::string();
          },
          [member](SweepRow& row, const std::string& text) {
            if (!text.empty()) row.*member = parse_number<double>(text);
          }};
}
Column column(const char* name, std::optional<long> SweepRow::*member) {
  return {name, [member](const SweepRow& row) { return row.*member ? std::to_string(*(row.*member)) : std::string(); },
          [member](SweepRow& row, const std::string& text) {
            if (!text.empty()) row.*member = parse_number<long>(text);
          }};
}

// A time: no measured one is zero.
Column time_column(const char* name, std::optional<double> SweepRow::*member) {
  Column made = column(name, member);
  made.read = [member](SweepRow& row, const std::string& text) {
    if (text.empty()) return;
    row.*member = parse_number<double>(text);
    if (!(*(row.*member) > 0)) throw std::runtime_error(fmt::format("'{}' is not a time above 0", text));
  };
  return made;
}

const std::vector<Column>& columns() {
  using R = SweepRow;
  static const std::vector<Column> all = {
      column("op", &R::op),
      column("variant", &R::variant),
      column("kind", &R::kind),
      column("dtype", &R::dtype),
      column("problem", &R::problem),
      {"networks", [](const R& row) { return quote_csv(row.networks); },
       [](R& row, const std::string& text) {
         (void)parse_networks(text);
         row.networks = text;
       }},
      {"status", [](const R& row) { return std::string(to_string(row.status)); },
       [](R& row, const std::string& text) {
         const auto outcome = parse_outcome(text);
         if (!outcome) throw std::runtime_error(fmt::format("'{}' is no status", text));
         row.status = *outcome;
       }},
      column("reason", &R::reason),
      column("device", &R::device),
      column("arch", &R::arch),
      time_column("time_cold_us", &R::time_cold_us),
      column("time_cold_mad_us", &R::time_cold_mad_us),
      time_column("time_warm_us", &R::time_warm_us),
      column("samples", &R::samples),
      column("stop", &R::stop),
      column("flops", &R::flops),
      column("bytes", &R::bytes),
      column("gflops", &R::gflops),
      column("gbps", &R::gbps),
      column("ai", &R::ai),
      column("attainable_gflops", &R::attainable_gflops),
      column("pct_of_roof", &R::pct_of_roof),
      column("bound", &R::bound),
      column("dram_read_bytes", &R::dram_read_bytes),
      column("dram_write_bytes", &R::dram_write_bytes),
      column("l2_bytes", &R::l2_bytes),
      column("occupancy_pct", &R::occupancy_pct),
      column("occupancy_limit_pct", &R::occupancy_limit_pct),
      column("tensor_pipe_pct", &R::tensor_pipe_pct),
      column("counter_status", &R::counter_status),
      column("registers", &R::registers),
      column("smem_bytes", &R::smem_bytes),
      column("spill_bytes", &R::spill_bytes),
      column("workspace_bytes", &R::workspace_bytes),
      column("prepare_us", &R::prepare_us),
      column("sm_clock_mhz", &R::sm_clock_mhz),
      column("throttle", &R::throttle),
      column("max_rel_error", &R::max_rel_error),
      column("tolerance", &R::tolerance),
      column("commit", &R::commit),
  };
  return all;
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

std::string sweep_csv_header() {
  std::string line;
  for (const Column& column : columns()) line += (line.empty() ? "" : ",") + std::string(column.name);
  return line + "\n";
}

std::string to_csv(const SweepRow& row) {
  std::string line;
  for (const Column& column : columns()) {
    if (&column != &columns().front()) line += ',';
    line += column.write(row);
  }
  return line + "\n";
}

// Of a problem's text, far above any op's; std::regex (--filter) recurses with the length.
constexpr std::size_t kLongestName = 4096;

std::vector<SweepRow> read_sweep_csv(const std::filesystem::path& file, std::vector<std::size_t>* lines) {
  const CsvFile csv = read_csv(file, /*drop_incomplete=*/true);
  for (std::size_t i = 0; i < columns().size(); ++i)
    if (i >= csv.header.size() || csv.header[i] != columns()[i].name)
      throw std::runtime_error(fmt::format("{}:1: column {} should be '{}'; this file was written by another version",
                                           file.string(), i + 1, columns()[i].name));
  std::vector<SweepRow> rows;
  rows.reserve(csv.lines.size());
  for (const CsvLine& line : csv.lines) {
    SweepRow row;
    for (std::size_t i = 0; i < columns().size(); ++i) {
      try {
        columns()[i].read(row, line.fields[i]);
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(
            fmt::format("{}:{}: column '{}': {}", file.string(), line.number, columns()[i].name, error.what()));
      }
    }
    for (const std::string* text : {&row.op, &row.variant, &row.dtype, &row.problem})
      if (text->size() > kLongestName)
        throw std::runtime_error(fmt::format("{}:{}: op, variant, dtype or problem of {} characters; at most {}",
                                             file.string(), line.number, text->size(), kLongestName));
    if (row.status == Outcome::ok && !row.time_cold_us)
      throw std::runtime_error(
          fmt::format("{}:{}: column 'time_cold_us': blank, but status is ok", file.string(), line.number));
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
    if (colon == std::string::npos || colon == 0)
      throw std::runtime_error(fmt::format("'{}' is not network:count", item));
    const long count = parse_number<long>(item.substr(colon + 1));
    if (count < 1 || count > kMaxNetworkCount)
      throw std::runtime_error(fmt::format("'{}': the count is outside 1 to {}", item, kMaxNetworkCount));
    counts.push_back({item.substr(0, colon), count});
    begin = end + 1;
  }
  return counts;
}

}  // namespace noisefloor
