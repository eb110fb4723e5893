#include "reports/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "reports/html_page.h"
#include "reports/run/csv.h"
#include "reports/selected_cases.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Columns that are text even where every value looks like a number (a commit may).
const std::set<std::string>& text_columns() {
  static const std::set<std::string> names = {"op",       "variant", "kind",   "dtype",    "problem",
                                              "networks", "status",  "reason", "device",   "arch",
                                              "stop",     "bound",   "commit", "throttle", "counter_status"};
  return names;
}

std::optional<double> as_number(const std::string& text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// {"values": [...], "index": [...]}: each text once.
Json dictionary_column(const std::vector<std::string>& texts) {
  Json values = Json::array(), index = Json::array();
  std::unordered_map<std::string, std::size_t> place;
  for (const std::string& text : texts) {
    const auto [found, is_new] = place.try_emplace(text, place.size());
    if (is_new) values.push_back(text);
    index.push_back(found->second);
  }
  return {{"values", std::move(values)}, {"index", std::move(index)}};
}

// [1.5, null, ...]; nothing where a value is neither a number nor blank.
std::optional<Json> number_column(const std::vector<std::string>& texts) {
  Json numbers = Json::array();
  for (const std::string& text : texts) {
    const auto value = as_number(text);
    if (!value && !text.empty()) return std::nullopt;
    numbers.push_back(value ? Json(*value) : Json());
  }
  return numbers;
}

Json column_json(const std::string& name, const std::vector<std::string>& texts) {
  if (text_columns().count(name) == 0)
    if (auto numbers = number_column(texts)) return *numbers;
  return dictionary_column(texts);
}

// Every column of sweep.csv, by the one place that knows them.
Json rows_json(const std::vector<SweepRow>& rows) {
  std::string header = sweep_csv_header();
  header.pop_back();  // the line end
  const auto names = split_csv_line(header);
  std::vector<std::vector<std::string>> columns(names.size());
  for (const SweepRow& row : rows) {
    std::string line = to_csv(row);
    line.pop_back();
    auto fields = split_csv_line(line);
    for (std::size_t i = 0; i < names.size(); ++i) columns[i].push_back(std::move(fields[i]));
  }
  Json json = {{"count", rows.size()}, {"names", names}, {"columns", Json::object()}};
  for (std::size_t i = 0; i < names.size(); ++i) json["columns"][names[i]] = column_json(names[i], columns[i]);
  return json;
}

Json ceilings_json(const fs::path& file) {
  const CsvFile csv = read_csv(file);
  const auto column = [&](const char* name) {
    const auto found = std::find(csv.header.begin(), csv.header.end(), name);
    if (found == csv.header.end()) throw std::runtime_error(fmt::format("{}:1: no column '{}'", file.string(), name));
    return static_cast<std::size_t>(found - csv.header.begin());
  };
  const std::size_t name = column("name"), value = column("value"), unit = column("unit"), sheet = column("datasheet");
  Json ceilings = Json::array();
  for (const CsvLine& line : csv.lines) {
    const auto rate = [&](std::size_t index, const char* what) -> Json {
      const std::string& text = line.fields[index];
      if (text.empty() && index == sheet) return {};
      const auto parsed = as_number(text);
      if (!parsed || !(*parsed > 0))
        throw std::runtime_error(
            fmt::format("{}:{}: column '{}' is '{}', not a rate above 0", file.string(), line.number, what, text));
      return *parsed;
    };
    ceilings.push_back({{"name", line.fields[name]},
                        {"value", rate(value, "value")},
                        {"unit", line.fields[unit]},
                        {"datasheet", rate(sheet, "datasheet")}});
  }
  return ceilings;
}

Json networks_json(const std::vector<NetworkProblem>& problems) {
  std::vector<std::string> network, op, problem;
  Json counts = Json::array();
  for (const NetworkProblem& use : problems) {
    network.push_back(use.network);
    op.push_back(use.op);
    problem.push_back(use.problem);
    counts.push_back(use.count);
  }
  return {{"network", dictionary_column(network)},
          {"op", dictionary_column(op)},
          {"problem", dictionary_column(problem)},
          {"count", counts}};
}

Json cases_json(const std::vector<SelectedCase>& cases) {
  std::vector<std::string> op, dtype, problem, variant;
  for (const SelectedCase& one : cases) {
    op.push_back(one.op);
    dtype.push_back(one.dtype);
    problem.push_back(one.problem);
    variant.push_back(one.variant);
  }
  return {{"op", dictionary_column(op)},
          {"dtype", dictionary_column(dtype)},
          {"problem", dictionary_column(problem)},
          {"variant", dictionary_column(variant)},
          {"count", cases.size()}};
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {(std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>()};
}

// An environment file as it is; null where there is none. Order of keys as written: it was chosen for reading.
nlohmann::ordered_json environment(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  try {
    return nlohmann::ordered_json::parse(text_of(file));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("{}: is no JSON: {}", file.string(), error.what()));
  }
}

// An array of [key, value], since objects of the page's JSON are sorted.
Json ordered_pairs(const nlohmann::ordered_json& object) {
  if (!object.is_object()) return {};
  Json pairs = Json::array();
  for (const auto& [key, value] : object.items()) pairs.push_back({key, Json::parse(value.dump())});
  return pairs;
}

bool ends_in_torn_line(const fs::path& file) {
  const std::string text = text_of(file);
  return !text.empty() && text.back() != '\n';
}

// What the reader should know of first is `urgent`: it stands at the top of the page.
Json lacks(const fs::path& folder, const std::vector<SelectedCase>& chosen, const std::vector<SelectedCase>& without) {
  Json all = Json::array();
  const auto say = [&](bool urgent, std::string text) {
    all.push_back({{"urgent", urgent}, {"text", std::move(text)}});
  };
  if (!without.empty())
    say(true,
        fmt::format("{} of the {} cases that were chosen have no row: the sweep was interrupted, or its budget ran "
                    "out. The same command with --out resumes it.",
                    without.size(), chosen.size()));
  if (ends_in_torn_line(folder / "sweep.csv"))
    say(true, "sweep.csv ends within a row: the sweep was killed while it wrote. That row is left out here.");
  if (fs::exists(folder / ".unfinished"))
    say(true, "scripts/sweep did not come to its end in this folder. The same command resumes it.");
  if (chosen.empty()) say(false, "cases.csv is not there, so that cases without a row cannot be named.");
  constexpr std::pair<const char*, const char*> kFiles[] = {
      {"networks.csv", "totals know only of problems that have a row"},
      {"samples.jsonl", "the gate cannot compare this run"},
      {"env.json", "machine, build and command line are not known"}};
  for (const auto& [name, why] : kFiles)
    if (!fs::exists(folder / name)) say(false, fmt::format("{} is not there: {}.", name, why));
  return all;
}

}  // namespace

nlohmann::json run_report(const fs::path& folder, const std::vector<SweepRow>& rows) {
  if (rows.empty()) throw std::runtime_error(fmt::format("{}: the sweep has no rows", (folder / "sweep.csv").string()));
  const auto chosen = read_selected_cases(folder);
  const auto without = cases_without_row(chosen, rows);
  return {{"rows", rows_json(rows)},
          {"ceilings", ceilings_json(folder / "ceilings.csv")},
          {"networks", networks_json(read_network_problems(folder, rows))},
          {"environment", ordered_pairs(environment(folder / "env.json"))},
          {"environment_pytorch", ordered_pairs(environment(folder / "env_pytorch.json"))},
          {"lacks", lacks(folder, chosen, without)},
          {"without_row", cases_json(without)}};
}

std::string write_run_report(const fs::path& folder, const std::vector<SweepRow>& rows) {
  const auto plotly = find_plotly();
  HtmlPage page{rows.front().device,
                "report.html",
                {"common.js", "commands.js", "filters.js", "details.js", "roofline.js", "bars.js", "totals.js",
                 "table.js", "gaps.js", "report.js"},
                run_report(folder, rows)};
  write_atomically(folder / "report.html", html_page(page, plotly));
  return plotly ? "" : no_plotly_message();
}

}  // namespace noisefloor
