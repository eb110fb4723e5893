#include "reports/run/merge_crosscheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>

#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/statistics.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCrosscheck = "crosscheck.csv";

bool has_crosscheck(const fs::path& folder) {
  return fs::exists(folder / kCrosscheck);
}

CaseId case_of(const CsvFile& csv, const CsvLine& line) {
  CaseId id;
  id.op = line.fields[csv.column("op")], id.problem = line.fields[csv.column("problem")];
  id.dtype = line.fields[csv.column("dtype")], id.variant = line.fields[csv.column("variant")];
  return id;
}

double do_bench_of(const CsvFile& csv, const CsvLine& line) {
  const std::string& text = line.fields[csv.column("do_bench_us")];
  double us = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), us);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !std::isfinite(us) || !(us > 0))
    throw std::runtime_error(
        fmt::format("{}:{}: column 'do_bench_us' is '{}', not a time above 0", csv.file.string(), line.number, text));
  return us;
}

}  // namespace

void join_crosschecks(const fs::path& out, const std::vector<fs::path>& parts) {
  for (const fs::path& part : parts)
    if (has_crosscheck(part))
      merge_csv_file(out / kCrosscheck, read_csv(part / kCrosscheck), {"op", "variant", "dtype", "problem"});
}

bool pool_crosschecks(const fs::path& out, const std::vector<fs::path>& runs,
                      const std::map<CaseId, const SweepRow*>& rows) {
  const auto with = std::ranges::count_if(runs, has_crosscheck);
  if (with < std::ssize(runs)) return with == 0;
  std::map<CaseId, std::vector<double>> times;
  for (const fs::path& run : runs) {
    const CsvFile csv = read_csv(run / kCrosscheck);
    std::set<CaseId> seen;
    for (const CsvLine& line : csv.lines) {
      const CaseId id = case_of(csv, line);
      if (!seen.insert(id).second)
        throw std::runtime_error(fmt::format("{}:{}: {} is there twice", csv.file.string(), line.number, id.name()));
      times[id].push_back(do_bench_of(csv, line));
    }
  }
  CsvFile pooled = read_csv(runs.front() / kCrosscheck);  // also with columns of a later version
  std::erase_if(pooled.lines, [&](CsvLine& line) {
    const CaseId id = case_of(pooled, line);
    const auto row = rows.find(id);
    if (row == rows.end() || !row->second->time_cold_us || times.at(id).size() < runs.size()) return true;
    const double own = *row->second->time_cold_us, theirs = median(times.at(id));
    line.fields[pooled.column("time_cold_us")] = fmt::format("{:.6g}", own);
    line.fields[pooled.column("do_bench_us")] = fmt::format("{:.6g}", theirs);
    line.fields[pooled.column("ratio")] = fmt::format("{:.6g}", own / theirs);
    return false;
  });
  write_atomically(out / kCrosscheck, pooled.text());
  return true;
}

}  // namespace noisefloor
