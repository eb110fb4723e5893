#include "reports/page/run_report.h"

#include <fmt/format.h>

#include "reports/page/html_page.h"
#include "reports/run/ceilings_csv.h"
#include "reports/run/json_file.h"
#include "reports/run/run_folder.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

using Json = nlohmann::json;

Json ceilings_json(const fs::path& file) {
  Json ceilings = Json::array();
  for (const Ceiling& row : read_ceilings(file).rows)
    ceilings.push_back({{"name", row.name},
                        {"value", row.value},
                        {"unit", row.unit},
                        {"datasheet", row.datasheet > 0 ? Json(row.datasheet) : Json()}});
  return ceilings;
}

// Texts of items, by name.
template <class Item, class Member, std::size_t count>
Json text_columns(const std::vector<Item>& items, const std::pair<const char*, Member> (&members)[count]) {
  Json columns = {{"count", items.size()}};
  for (const auto& [name, member] : members) {
    std::vector<std::string> texts;
    for (const Item& item : items) texts.push_back(item.*member);
    columns[name] = text_column(texts);
  }
  return columns;
}

Json networks_json(const std::vector<NetworkProblem>& problems) {
  constexpr std::pair<const char*, std::string NetworkProblem::*> kTexts[] = {
      {"network", &NetworkProblem::network}, {"op", &NetworkProblem::op}, {"problem", &NetworkProblem::problem}};
  Json columns = text_columns(problems, kTexts);
  columns["count"] = Json::array();
  for (const NetworkProblem& use : problems) columns["count"].push_back(use.count);
  return columns;
}

Json totals_json(const std::vector<NetworkTotal>& totals) {
  Json all = Json::array();
  for (const NetworkTotal& total : totals) {
    Json line = {{"network", total.network},
                 {"set", total.set},
                 {"op", total.op},
                 {"dtype", total.dtype},
                 {"choice", total.choice},
                 {"kind", total.kind},
                 {"problems", total.problems},
                 {"won", total.won},
                 {"lost", total.lost},
                 {"equal", total.equal},
                 {"unresolved", total.unresolved},
                 {"shortcuts", total.plain ? Json(total.plain->shortcuts) : Json()},
                 {"worst", total.worst_ratio ? Json(*total.worst_ratio) : Json()}};
    for (const auto& [name, time] : kTotalTimes) {
      line[name] = (total.*time).us;
      line["missing"][name] = (total.*time).missing;
      line["plain"][name] = total.plain ? Json(((*total.plain).*time).us) : Json();
    }
    if (const auto& launches = total.launches)
      line["launches"] = {{"all", launches->all},
                          {"covered", launches->covered},
                          {"warm", launches->warm.us},
                          {"over", total.over_launches() ? Json(*total.over_launches()) : Json()},
                          {"weights_cold", launches->weights_cold_us},
                          {"over_weights_cold", total.over_weights_cold() ? Json(*total.over_weights_cold()) : Json()}};
    all.push_back(std::move(line));
  }
  return all;
}

// An environment file as it is; null where there is none. Order of keys as written: it was chosen for reading.
nlohmann::ordered_json environment(const fs::path& file) {
  return fs::exists(file) ? read_json_object(file) : nullptr;
}

// An array of [key, value], since objects of the page's JSON are sorted.
Json ordered_pairs(const nlohmann::ordered_json& object) {
  if (!object.is_object()) return {};
  Json pairs = Json::array();
  for (const auto& [key, value] : object.items()) pairs.push_back({key, Json::parse(value.dump())});
  return pairs;
}

bool ends_in_torn_line(const fs::path& file) {
  const std::string text = read_whole_file(file);
  return !text.empty() && text.back() != '\n';
}

// What the reader should know of first is `urgent`: it stands at the top of the page.
Json lacks(const fs::path& folder, const std::vector<CaseId>& chosen, const std::vector<CaseId>& without) {
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
  if (is_unfinished(folder))
    say(true, "scripts/sweep did not come to its end in this folder. The same command resumes it.");
  if (chosen.empty()) say(false, "cases.csv is not there, so that cases without a row cannot be named.");
  const std::pair<fs::path, const char*> files[] = {
      {folder / "networks.csv", "totals know only of problems that have a row"},
      {samples_file(folder), "the gate cannot compare this run"},
      {folder / "env.json", "machine, build and command line are not known"}};
  for (const auto& [file, why] : files)
    if (!fs::exists(file)) say(false, fmt::format("{} is not there: {}.", file.filename().string(), why));
  return all;
}

// A bound's text -> the ceiling of arithmetic in it.
std::map<std::string, std::string> ceiling_of(const std::vector<SweepRow>& rows) {
  std::map<std::string, std::string> ceilings;
  for (const SweepRow& row : rows) ceilings[row.bound.text()] = row.bound.ceiling;
  return ceilings;
}

}  // namespace

nlohmann::json run_report(const fs::path& folder, const std::vector<SweepRow>& rows,
                          const std::map<CaseId, RowSamples>& samples) {
  if (rows.empty()) throw failure("{}: the sweep has no rows", (folder / "sweep.csv").string());
  const auto chosen = read_selected_cases(folder);
  const auto problems = read_network_problems(folder, rows);
  const auto without = cases_without_row(chosen, rows);
  return {{"rows", rows_json(rows)},
          {"ceilings", ceilings_json(folder / "ceilings.csv")},
          {"ceiling_of", ceiling_of(rows)},
          {"networks", networks_json(problems)},
          {"totals", totals_json(network_totals(rows, problems, samples))},
          {"environment", ordered_pairs(environment(folder / "env.json"))},
          {"lacks", lacks(folder, chosen, without)},
          {"without_row", text_columns(without, kCaseParts)}};
}

std::string write_run_report(const fs::path& folder, const std::vector<SweepRow>& rows,
                             const std::map<CaseId, RowSamples>& samples) {
  const auto plotly = find_plotly();
  HtmlPage page{rows.front().device,
                "report.html",
                {"common.js", "filters.js", "details.js", "roofline.js", "bars.js", "totals.js", "table.js", "gaps.js",
                 "report.js"},
                run_report(folder, rows, samples)};
  write_atomically(folder / "report.html", html_page(page, plotly));
  return plotly ? "" : no_plotly_message();
}

}  // namespace noisefloor
