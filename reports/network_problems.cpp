#include "reports/network_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <stdexcept>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

constexpr const char* kFile = "networks.csv";

bool same_place(const NetworkProblem& a, const NetworkProblem& b) {
  return a.network == b.network && a.op == b.op && a.problem == b.problem;
}

void merge_into(std::vector<NetworkProblem>& all, const NetworkProblem& added) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const NetworkProblem& known) { return same_place(known, added); });
  if (found == all.end())
    all.push_back(added);
  else
    found->count = added.count;
}

std::vector<NetworkProblem> read_file(const std::filesystem::path& file) {
  const CsvFile csv = read_csv(file);
  if (csv.header != std::vector<std::string>{"network", "op", "problem", "count"})
    throw std::runtime_error(fmt::format("{}:1: the columns should be network,op,problem,count", file.string()));
  std::vector<NetworkProblem> problems;
  for (const CsvLine& line : csv.lines) {
    long count = 0;
    const std::string& text = line.fields[3];
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), count);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || count < 1 || count > kMaxNetworkCount)
      throw std::runtime_error(fmt::format("{}:{}: column 'count' is '{}', not a whole number from 1 to 1e9",
                                           file.string(), line.number, text));
    problems.push_back({line.fields[0], line.fields[1], line.fields[2], count});
  }
  return problems;
}

}  // namespace

void merge_network_problems(const std::filesystem::path& folder, const std::vector<NetworkProblem>& problems) {
  const auto file = folder / kFile;
  std::vector<NetworkProblem> all;
  if (std::filesystem::exists(file)) all = read_file(file);
  for (const NetworkProblem& problem : problems) merge_into(all, problem);
  std::string text = "network,op,problem,count\n";
  for (const NetworkProblem& p : all)
    text += fmt::format("{},{},{},{}\n", quote_csv(p.network), quote_csv(p.op), quote_csv(p.problem), p.count);
  write_atomically(file, text);
}

std::vector<NetworkProblem> network_problems_of(const std::vector<SweepRow>& rows) {
  std::vector<NetworkProblem> all;
  for (const SweepRow& row : rows)
    for (const NetworkCount& use : parse_networks(row.networks))
      merge_into(all, {use.network, row.op, row.problem, use.count});
  return all;
}

std::vector<NetworkProblem> read_network_problems(const std::filesystem::path& folder,
                                                  const std::vector<SweepRow>& rows) {
  const auto file = folder / kFile;
  return std::filesystem::exists(file) ? read_file(file) : network_problems_of(rows);
}

}  // namespace noisefloor
