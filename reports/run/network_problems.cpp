#include "reports/run/network_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "reports/run/csv.h"
#include "reports/run/run_files.h"

namespace noisefloor {

std::string name_of_today(const std::string& old_network) {
  static const std::map<std::string, std::string> kNames{
#define NOISEFLOOR_CASE_COLUMN(...)
#define NOISEFLOOR_COLUMN(...)
#define NOISEFLOOR_OLD_NETWORK(old, name) {old, name},
#include "reports/run/columns.def"
  };
  const auto found = kNames.find(old_network);
  return found == kNames.end() ? old_network : found->second;
}

namespace {

constexpr const char *kNetworksFile = "networks.csv", *kSet = "set", *kYes = "yes";

CsvFile read_networks_file(const fs::path& folder) {
  CsvFile csv = read_csv(folder / kNetworksFile);
  const std::size_t network = csv.column("network");
  if (has_old_names(folder))
    for (CsvLine& line : csv.lines) line.fields[network] = name_of_today(line.fields[network]);
  return csv;
}

std::vector<NetworkProblem> read_file(const fs::path& folder) {
  const CsvFile csv = read_networks_file(folder);
  const std::size_t network = csv.column("network"), op = csv.column("op"), problem = csv.column("problem"),
                    count_column = csv.column("count");
  const auto set = std::find(csv.header.begin(), csv.header.end(), kSet);  // older files lack it
  std::vector<NetworkProblem> problems;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> seen;
  for (const CsvLine& line : csv.lines) {
    const auto [first, is_new] =
        seen.try_emplace({line.fields[network], line.fields[op], line.fields[problem]}, line.number);
    if (!is_new)
      throw csv.wrong(line.number, "{} of {} in '{}' is there twice, first in line {}", line.fields[problem],
                      line.fields[op], line.fields[network], first->second);
    const std::string& text = line.fields[count_column];
    const long count = parse_number<long>(text).value_or(0);
    if (count < 1 || count > kMaxNetworkCount)
      throw csv.wrong(line.number, "column 'count' is '{}', not a whole number from 1 to 1e9", text);
    problems.push_back(
        {line.fields[network], line.fields[op], line.fields[problem], count,
         set != csv.header.end() && line.fields[static_cast<std::size_t>(set - csv.header.begin())] == kYes});
  }
  return problems;
}

}  // namespace

bool has_old_names(const fs::path& folder) {
  constexpr int kSince = 3;
  const auto file = folder / "env.json";
  return fs::exists(file) && read_environment(file).schema < kSince;
}

std::string names_of_today(const std::string& old_networks) {
  std::string text;
  for (const NetworkCount& use : parse_networks(old_networks))
    text += fmt::format("{}{}:{}", text.empty() ? "" : ";", name_of_today(use.network), use.count);
  return text;
}

void merge_network_problems(const fs::path& folder, const std::vector<NetworkProblem>& problems) {
  CsvFile added{kNetworksFile, {"network", "op", "problem", "count", kSet}, {}};
  for (const NetworkProblem& p : problems)
    added.lines.push_back({0, {p.network, p.op, p.problem, std::to_string(p.count), p.set ? kYes : ""}});
  merge_csv_file(folder / kNetworksFile, added, {"network", "op", "problem"});
}

void merge_network_problems(const fs::path& folder, const fs::path& from, const std::vector<SweepRow>& rows) {
  if (fs::exists(from / kNetworksFile))
    merge_csv_file(folder / kNetworksFile, read_networks_file(from), {"network", "op", "problem"});
  else
    merge_network_problems(folder, network_problems_of(rows));
}

std::vector<NetworkProblem> network_problems_of(const std::vector<SweepRow>& rows) {
  std::vector<NetworkProblem> all;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
  for (const SweepRow& row : rows)
    for (const NetworkCount& use : parse_networks(row.networks)) {
      const auto [place, is_new] = places.try_emplace({use.network, row.op, row.problem}, all.size());
      if (is_new) all.push_back({use.network, row.op, row.problem, 0, false});
      all[place->second].count = use.count;
    }
  return all;
}

std::vector<NetworkProblem> read_network_problems(const fs::path& folder, const std::vector<SweepRow>& rows) {
  return fs::exists(folder / kNetworksFile) ? read_file(folder) : network_problems_of(rows);
}

namespace {

constexpr const char* kCasesFile = "cases.csv";

}  // namespace

void merge_selected_cases(const fs::path& folder, const std::vector<CaseId>& cases) {
  CsvFile added{kCasesFile, {"op", "dtype", "problem", "variant"}, {}};
  for (const CaseId& one : cases) added.lines.push_back({0, {one.op, one.dtype, one.problem, one.variant}});
  merge_csv_file(folder / kCasesFile, added, {"op", "dtype", "problem", "variant"});
}

void merge_selected_cases(const fs::path& folder, const fs::path& from) {
  if (fs::exists(from / kCasesFile))
    merge_csv_file(folder / kCasesFile, read_csv(from / kCasesFile), {"op", "dtype", "problem", "variant"});
}

std::vector<CaseId> read_selected_cases(const fs::path& folder) {
  const auto file = folder / kCasesFile;
  std::vector<CaseId> cases;
  if (!fs::exists(file)) return cases;
  const CsvFile csv = read_csv(file);
  for (const auto& [name, part] : kCaseParts) (void)csv.column(name);
  std::unordered_set<CaseId> seen;
  for (const CsvLine& line : csv.lines) {
    CaseId& id = cases.emplace_back();
    for (const auto& [name, part] : kCaseParts) id.*part = line.fields[csv.column(name)];
    if (!seen.insert(id).second) throw csv.wrong(line.number, "{} is there twice", id.name());
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
