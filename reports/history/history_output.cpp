// What a trend looks like: terminal, CSV, page.
#include <fmt/format.h>

#include <algorithm>

#include "reports/history/history.h"
#include "reports/page/html_page.h"
#include "reports/run/csv.h"
#include "reports/totals/text_tables.h"

namespace noisefloor {
namespace {

constexpr std::size_t kColumns = 8;  // the last runs of each device, in the terminal
constexpr std::size_t kNameWidth = 60;

std::string value_text(double microseconds) {
  return microseconds >= 1000 ? fmt::format("{:.0f}", microseconds) : fmt::format("{:.4g}", microseconds);
}

const ChangePoint* change_at(const HistorySeries& series, std::size_t run) {
  for (const ChangePoint& change : series.changes)
    if (change.index == run) return &change;
  return nullptr;
}

double percent(const ChangePoint& change) {
  return 100 * (change.after / change.before - 1);
}

std::string folder_name(const HistoryRun& run) {
  const auto folder = fs::absolute(run.files.folder).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

std::string device_table(const std::vector<HistoryRun>& runs, const History& history, const std::string& device) {
  std::vector<const HistorySeries*> series;
  for (const HistorySeries& one : history)
    if (one.device == device) series.push_back(&one);
  if (series.empty()) return "(no series)\n";
  const std::size_t count = series.front()->runs.size(), first = count > kColumns ? count - kColumns : 0;
  std::vector<Cells> lines{{"us"}};
  for (std::size_t i = first; i < count; ++i) lines.front().push_back(fmt::format("#{}", i + 1));
  lines.front().emplace_back("first-last");
  for (const HistorySeries* one : series) {
    Cells& line = lines.emplace_back(Cells{clipped(one->name, kNameWidth)});
    for (std::size_t i = first; i < count; ++i) {
      const std::string mark = change_at(*one, i) != nullptr ? "*" : "";
      line.push_back(one->values[i] ? mark + value_text(*one->values[i]) : "-");
    }
    std::vector<double> present;
    for (const auto& value : one->values)
      if (value) present.push_back(*value);
    line.push_back(present.size() > 1 ? fmt::format("{:+.1f} %", 100 * (present.back() / present.front() - 1)) : "-");
  }
  std::string text = aligned(lines);
  for (const HistorySeries* one : series)
    for (const ChangePoint& change : one->changes)
      text += fmt::format("changed at #{} ({}): {}: {} -> {} us ({:+.1f} %)\n", change.index + 1,
                          runs[one->runs[change.index]].files.environment.commit, one->name, value_text(change.before),
                          value_text(change.after), percent(change));
  return text;
}

}  // namespace

std::string history_table(const std::vector<HistoryRun>& runs, const History& history) {
  std::string text;
  if (runs.back().files.environment.device != runs.front().files.environment.device)
    text += fmt::format("{} devices: their runs are kept apart\n", std::ranges::count(runs, 1u, &HistoryRun::number));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const HistoryRun& run = runs[i];
    const RunEnvironment& environment = run.files.environment;
    if (run.number == 1) text += fmt::format("\n{}\n", environment.device);
    text += fmt::format("  #{:<3} {}  commit {}  driver {}  {}\n", run.number, environment.time_utc, environment.commit,
                        environment.driver.empty() ? "-" : environment.driver, run.files.folder.string());
    if (i + 1 == runs.size() || runs[i + 1].number == 1) text += device_table(runs, history, environment.device);
  }
  if (std::ranges::all_of(history, [](const HistorySeries& series) { return series.changes.empty(); }))
    text += "no change of level in any series\n";
  return text;
}

std::string history_csv(const std::vector<HistoryRun>& runs, const History& history) {
  std::string text = "device,series,run,time_utc,commit,time_us,changed_pct\n";
  for (const HistorySeries& series : history)
    for (std::size_t i = 0; i < series.runs.size(); ++i) {
      const HistoryRun& run = runs[series.runs[i]];
      const ChangePoint* change = change_at(series, i);
      text += csv_row(series.device, series.name, folder_name(run), run.files.environment.time_utc,
                      run.files.environment.commit, series.values[i] ? fmt::format("{:.6g}", *series.values[i]) : "",
                      change != nullptr ? fmt::format("{:.3g}", percent(*change)) : "");
    }
  return text;
}

std::string history_html(const std::vector<HistoryRun>& runs, const History& history, bool warm, std::string* message) {
  using Json = nlohmann::json;
  Json data = {{"time", warm ? "warm" : "cold"}, {"runs", Json::array()}, {"series", Json::array()}};
  for (const HistoryRun& run : runs) {
    const RunEnvironment& environment = run.files.environment;
    data["runs"].push_back({{"number", run.number},
                            {"device", environment.device},
                            {"time", environment.time_utc},
                            {"commit", environment.commit},
                            {"driver", environment.driver},
                            {"folder", folder_name(run)}});
  }
  for (const HistorySeries& series : history) {
    Json values = Json::array(), changes = Json::array();
    for (const auto& value : series.values) values.push_back(value ? Json(*value) : Json());
    for (const ChangePoint& change : series.changes)
      changes.push_back({{"at", change.index}, {"before", change.before}, {"after", change.after}});
    data["series"].push_back({{"name", series.name},
                              {"device", series.device},
                              {"runs", series.runs},
                              {"values", std::move(values)},
                              {"changes", std::move(changes)}});
  }
  const auto plotly = find_plotly();
  if (message != nullptr) *message = plotly ? "" : no_plotly_message();
  return html_page({"history", "history.html", {"common.js", "history.js"}, std::move(data)}, plotly);
}

}  // namespace noisefloor
