#include "reports/history/history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "reports/run/files.h"
#include "reports/run/statistics.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

bool chosen(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

bool is_run(const fs::path& folder) {
  return fs::is_regular_file(folder / "sweep.csv");
}

std::vector<fs::path> run_folders(const std::vector<fs::path>& given) {
  std::vector<fs::path> folders;
  const auto take = [&](const fs::path& run) {
    if (!is_partial(run.has_filename() ? run : run.parent_path())) folders.push_back(run);
  };
  for (const fs::path& folder : given) {
    if (!fs::is_directory(folder)) throw failure("{}: no such folder", folder.string());
    if (is_run(folder)) {
      take(folder);
      continue;
    }
    const std::size_t before = folders.size();
    for (const auto& entry : fs::directory_iterator(folder))
      if (is_run(entry.path()) && !is_leftover(entry.path().filename().string())) take(entry.path());
    if (folders.size() == before)
      throw failure("{}: no run there (a folder with a sweep.csv), nor right in it", folder.string());
  }
  if (folders.empty()) throw failure("{}: was left by a command that was killed; it is no run", given.front().string());
  std::set<fs::path> known;
  for (const fs::path& folder : folders)
    if (!known.insert(fs::canonical(folder)).second) throw failure("{}: this run is given twice", folder.string());
  return folders;
}

HistoryRun read_history_run(const fs::path& folder) {
  HistoryRun run;
  run.files = read_run(folder);
  if (run.files.rows.empty()) throw failure("{}: the sweep has no rows", (folder / "sweep.csv").string());
  if (run.files.environment.time_utc.empty())
    throw failure("{}: has no 'time_utc', so that the run has no place in time", (folder / "env.json").string());
  const auto time = parse_time(run.files.environment.time_utc);
  if (!time)
    throw failure("{}: 'time_utc' is '{}', not a time with its zone, as 2026-01-31T12:00:00Z",
                  (folder / "env.json").string(), run.files.environment.time_utc);
  run.time = *time;
  run.problems = read_network_problems(folder, run.files.rows);
  return run;
}

std::optional<double> time_of(const SweepRow& row, bool warm) {
  if (row.status != Outcome::ok) return std::nullopt;
  return warm ? row.time_warm_us : row.time_cold_us;
}

// Without samples the median alone.
RunValue value_of(const HistoryRun& run, const SweepRow& row, bool warm) {
  const double time = *time_of(row, warm);
  const auto found = run.files.samples.find(row);
  if (found == run.files.samples.end()) return {time, time, time};
  const auto& samples = warm ? found->second.warm_us : found->second.cold_us;
  if (samples.empty()) return {time, time, time};
  const Interval interval = median_interval(samples, 3);
  return {time, interval.low, interval.high};
}

// A series before the changes are looked for: by the run's index, its value.
using Traced = std::map<std::size_t, RunValue>;
using Traces = std::map<std::pair<std::string, std::string>, Traced>;  // device, name

void trace_cases(const HistoryRun& run, std::size_t index, const HistorySelection& selection, const NameFilter& filter,
                 Traces& traces) {
  for (const SweepRow& row : run.files.rows) {
    if (!chosen(selection.ops, row.op) || !chosen(selection.variants, row.variant)) continue;
    if (!selection.networks.empty()) {
      const auto uses = parse_networks(row.networks);
      if (std::none_of(uses.begin(), uses.end(),
                       [&](const NetworkCount& use) { return chosen(selection.networks, use.network); }))
        continue;
    }
    const std::string name = row.name();
    if (!time_of(row, selection.warm) || !filter(name)) continue;
    traces[{run.files.environment.device, name}][index] = value_of(run, row, selection.warm);
  }
}

// Over all of the problems, or nothing.
std::optional<RunValue> value_of(const HistoryRun& run, const NetworkTotal& total, bool warm) {
  if ((warm ? total.warm.missing : total.cold.missing) > 0) return std::nullopt;
  RunValue sum{warm ? total.warm.us : total.cold.us};
  for (const auto& [row, count] : total.parts) {
    const RunValue part = value_of(run, *row, warm);
    sum.low += part.low * static_cast<double>(count);
    sum.high += part.high * static_cast<double>(count);
  }
  return sum;
}

void trace_totals(const HistoryRun& run, std::size_t index, const HistorySelection& selection, Traces& traces) {
  for (const NetworkTotal& total : network_totals(run.files.rows, run.problems)) {
    if (total.op == kAllOps || !chosen(selection.networks, total.network) || !chosen(selection.ops, total.op)) continue;
    if (selection.variants.empty() ? total.choice != kOwnBest : !chosen(selection.variants, total.choice)) continue;
    const std::string name = fmt::format("{}/{}/{}/{}", total.network, total.op, total.dtype, total.choice);
    if (const auto value = value_of(run, total, selection.warm))
      traces[{run.files.environment.device, name}][index] = *value;
  }
}

using Values = std::span<const RunValue>;

RunValue level_of(Values runs) {
  const auto middle = [&](double RunValue::*of) {
    std::vector<double> all;
    for (const RunValue& run : runs) all.push_back(run.*of);
    return median(std::move(all));
  };
  return {middle(&RunValue::value), middle(&RunValue::low), middle(&RunValue::high)};
}

bool lie_apart(const RunValue& before, const RunValue& after) {
  const double least = std::max(kLeastChange * before.value, kLeastChangeUs);
  return std::abs(after.value - before.value) > least && (after.low > before.high || after.high < before.low);
}

HistorySeries series_of(const std::string& device, const std::string& name, const Traced& traced,
                        const std::vector<std::size_t>& runs_of_device) {
  HistorySeries series{name, device, runs_of_device, {}, {}};
  std::vector<RunValue> present;
  std::vector<std::size_t> place;
  for (std::size_t i = 0; i < runs_of_device.size(); ++i) {
    const auto found = traced.find(runs_of_device[i]);
    series.values.push_back(found == traced.end() ? std::nullopt : std::optional(found->second.value));
    if (found == traced.end()) continue;
    present.push_back(found->second);
    place.push_back(i);
  }
  series.changes = changes_of(present);
  for (ChangePoint& change : series.changes) change.index = place[change.index];
  return series;
}

}  // namespace

std::vector<ChangePoint> changes_of(std::span<const RunValue> runs) {
  std::vector<std::size_t> begins{0};
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (lie_apart(level_of(runs.subspan(begins.back(), i - begins.back())), runs[i])) begins.push_back(i);
  for (;;) {
    std::vector<ChangePoint> changes;
    std::size_t closest = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 1; i < begins.size(); ++i) {
      const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : runs.size();
      const RunValue before = level_of(runs.subspan(begins[i - 1], begins[i] - begins[i - 1])),
                     after = level_of(runs.subspan(begins[i], end - begins[i]));
      changes.push_back({begins[i], before.value, after.value});
      const double size = std::abs(after.value - before.value);
      if (!lie_apart(before, after) && size < least) closest = i, least = size;
    }
    if (closest == 0) return changes;
    begins.erase(begins.begin() + static_cast<std::ptrdiff_t>(closest));
  }
}

std::vector<HistoryRun> read_history(const std::vector<fs::path>& folders) {
  std::vector<HistoryRun> runs;
  for (const fs::path& folder : run_folders(folders)) runs.push_back(read_history_run(folder));
  const auto device_of = [](const HistoryRun& run) -> const std::string& { return run.files.environment.device; };
  std::ranges::sort(runs, {},
                    [&](const HistoryRun& run) { return std::tie(device_of(run), run.time, run.files.folder); });
  for (std::size_t i = 0; i < runs.size(); ++i)
    runs[i].number = i > 0 && device_of(runs[i]) == device_of(runs[i - 1]) ? runs[i - 1].number + 1 : 1;
  return runs;
}

History trace_history(const std::vector<HistoryRun>& runs, const HistorySelection& selection) {
  const NameFilter filter = name_filter("--case", selection.case_pattern);
  Traces traces;
  std::map<std::string, std::vector<std::size_t>> by_device;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    by_device[runs[i].files.environment.device].push_back(i);
    if (selection.case_pattern.empty())
      trace_totals(runs[i], i, selection, traces);
    else
      trace_cases(runs[i], i, selection, filter, traces);
  }
  if (traces.empty()) {
    std::set<std::string> networks, ops;
    for (const HistoryRun& run : runs)
      for (const NetworkProblem& use : run.problems) {
        networks.insert(use.network);
        ops.insert(use.op);
      }
    std::string renamed;
    for (const std::string& name : selection.networks)
      if (const std::string now = name_of_today(name); now != name && !networks.contains(name))
        renamed += fmt::format("; an older run's {} is called {} today", name, now);
    throw failure("no {} of these runs matches; their networks are {}, their ops {}{}",
                  selection.case_pattern.empty() ? "complete total" : "timed case", fmt::join(networks, ", "),
                  fmt::join(ops, ", "), renamed);
  }
  History history;
  for (const auto& [key, traced] : traces)
    history.push_back(series_of(key.first, key.second, traced, by_device.at(key.first)));
  return history;
}

}  // namespace noisefloor
