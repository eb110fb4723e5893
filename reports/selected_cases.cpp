#include "reports/selected_cases.h"

#include <fmt/format.h>

#include <stdexcept>
#include <unordered_set>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

constexpr const char* kFile = "cases.csv";

}  // namespace

void merge_selected_cases(const std::filesystem::path& folder, const std::vector<SelectedCase>& cases) {
  std::vector<SelectedCase> all = read_selected_cases(folder);
  std::unordered_set<std::string> known;
  for (const SelectedCase& one : all) known.insert(one.key());
  for (const SelectedCase& one : cases)
    if (known.insert(one.key()).second) all.push_back(one);
  std::string text = "op,dtype,problem,variant\n";
  for (const SelectedCase& one : all)
    text += fmt::format("{},{},{},{}\n", quote_csv(one.op), one.dtype, quote_csv(one.problem), quote_csv(one.variant));
  write_atomically(folder / kFile, text);
}

std::vector<SelectedCase> read_selected_cases(const std::filesystem::path& folder) {
  const auto file = folder / kFile;
  std::vector<SelectedCase> cases;
  if (!std::filesystem::exists(file)) return cases;
  CsvFile csv = read_csv(file);
  if (csv.header != std::vector<std::string>{"op", "dtype", "problem", "variant"})
    throw std::runtime_error(fmt::format("{}:1: the columns should be op,dtype,problem,variant", file.string()));
  for (CsvLine& line : csv.lines)
    cases.push_back(
        {std::move(line.fields[0]), std::move(line.fields[1]), std::move(line.fields[2]), std::move(line.fields[3])});
  return cases;
}

std::vector<SelectedCase> cases_without_row(const std::vector<SelectedCase>& cases, const std::vector<SweepRow>& rows) {
  std::unordered_set<std::string> present;
  for (const SweepRow& row : rows) present.insert(row.key());
  std::vector<SelectedCase> without;
  for (const SelectedCase& one : cases)
    if (present.count(one.key()) == 0) without.push_back(one);
  return without;
}

}  // namespace noisefloor
