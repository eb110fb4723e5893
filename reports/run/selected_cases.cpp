#include "reports/run/selected_cases.h"

#include <fmt/format.h>

#include <stdexcept>
#include <unordered_set>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

constexpr const char* kCasesFile = "cases.csv";

}  // namespace

void merge_selected_cases(const std::filesystem::path& folder, const std::vector<CaseId>& cases) {
  CsvFile added{kCasesFile, {"op", "dtype", "problem", "variant"}, {}};
  for (const CaseId& one : cases) added.lines.push_back({0, {one.op, one.dtype, one.problem, one.variant}});
  merge_csv_file(folder / kCasesFile, added, {"op", "dtype", "problem", "variant"});
}

void merge_selected_cases(const std::filesystem::path& folder, const std::filesystem::path& from) {
  if (std::filesystem::exists(from / kCasesFile))
    merge_csv_file(folder / kCasesFile, read_csv(from / kCasesFile), {"op", "dtype", "problem", "variant"});
}

std::vector<CaseId> read_selected_cases(const std::filesystem::path& folder) {
  const auto file = folder / kCasesFile;
  std::vector<CaseId> cases;
  if (!std::filesystem::exists(file)) return cases;
  const CsvFile csv = read_csv(file);
  const std::size_t op = csv.column("op"), dtype = csv.column("dtype"), problem = csv.column("problem"),
                    variant = csv.column("variant");
  std::unordered_set<CaseId> seen;
  for (const CsvLine& line : csv.lines) {
    cases.push_back({{line.fields[op], line.fields[problem], line.fields[dtype]}, line.fields[variant]});
    if (!seen.insert(cases.back()).second)
      throw std::runtime_error(
          fmt::format("{}:{}: {} is there twice", file.string(), line.number, cases.back().name()));
  }
  return cases;
}

std::vector<CaseId> cases_without_row(const std::vector<CaseId>& cases, const std::vector<SweepRow>& rows) {
  const std::unordered_set<CaseId> present(rows.begin(), rows.end());
  std::vector<CaseId> without;
  for (const CaseId& one : cases)
    if (!present.contains(one)) without.push_back(one);
  return without;
}

}  // namespace noisefloor
