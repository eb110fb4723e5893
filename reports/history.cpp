#include "reports/history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <stdexcept>

#include "reports/statistics.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnBest = "own best";
constexpr const char* kFastest = "fastest";
constexpr std::size_t kPasses = 50;  // samples of a total: as many imaginary forward passes

bool chosen(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

bool is_run(const fs::path& folder) {
  return fs::is_regular_file(folder / "sweep.csv");
}

std::vector<fs::path> run_folders(const std::vector<fs::path>& given) {
  std::vector<fs::path> folders;
  for (const fs::path& folder : given) {
    if (!fs::is_directory(folder)) throw std::runtime_error(fmt::format("{}: no such folder", folder.string()));
    if (is_run(folder)) {
      folders.push_back(folder);
      continue;
    }
    const std::size_t before = folders.size();
    for (const auto& entry : fs::directory_iterator(folder))
      if (is_run(entry.path())) folders.push_back(entry.path());
    if (folders.size() == before)
      throw std::runtime_error(
          fmt::format("{}: no run there (a folder with a sweep.csv), nor right in it", folder.string()));
  }
  std::set<fs::path> known;
  for (const fs::path& folder : folders)
    if (!known.insert(fs::canonical(folder)).second)
      throw std::runtime_error(fmt::format("{}: this run is given twice", folder.string()));
  return folders;
}

HistoryRun read_history_run(const fs::path& folder) {
  HistoryRun run;
  if (fs::exists(folder / "samples.jsonl")) {
    run.files = read_run(folder);
  } else {
    run.files.folder = folder;
    run.files.environment = read_environment(folder / "env.json");
    run.files.rows = read_sweep_csv(folder / "sweep.csv");
  }
  if (run.files.rows.empty())
    throw std::runtime_error(fmt::format("{}: the sweep has no rows", (folder / "sweep.csv").string()));
  if (run.files.environment.time_utc.empty())
    throw std::runtime_error(
        fmt::format("{}: has no 'time_utc', so that the run has no place in time", (folder / "env.json").string()));
  run.problems = read_network_problems(folder, run.files.rows);
  return run;
}

std::string case_name(const SweepRow& row) {
  return fmt::format("{}/{}/{}/{}", row.op, row.problem, row.dtype, row.variant);
}

std::optional<double> time_of(const SweepRow& row, bool warm) {
  if (row.status != Outcome::ok) return std::nullopt;
  return warm ? row.time_warm_us : row.time_cold_us;
}

std::span<const double> samples_of(const HistoryRun& run, const SweepRow& row, bool warm) {
  const auto found = run.files.samples.find(row.key());
  if (found == run.files.samples.end()) return {};
  return warm ? found->second.warm_us : found->second.cold_us;
}

// A series before the changes are looked for: by the run's index, its value.
struct Traced {
  std::map<std::size_t, RunValue> values;
};
using Traces = std::map<std::pair<std::string, std::string>, Traced>;  // device, name

void trace_cases(const HistoryRun& run, std::size_t index, const HistorySelection& selection, const std::regex& pattern,
                 Traces& traces) {
  for (const SweepRow& row : run.files.rows) {
    if (!chosen(selection.ops, row.op) || !chosen(selection.variants, row.variant)) continue;
    if (!selection.networks.empty()) {
      const auto uses = parse_networks(row.networks);
      if (std::none_of(uses.begin(), uses.end(),
                       [&](const NetworkCount& use) { return chosen(selection.networks, use.network); }))
        continue;
    }
    const std::string name = case_name(row);
    const auto time = time_of(row, selection.warm);
    if (!time || !std::regex_search(name, pattern)) continue;
    const auto samples = samples_of(run, row, selection.warm);
    traces[{run.files.environment.device, name}].values[index] = {*time, {samples.begin(), samples.end()}};
  }
}

// The rows that a total is made of: of each problem, the choice's.
using ChosenRows = std::map<std::string, const SweepRow*>;  // op|dtype|problem

std::map<std::string, ChosenRows> rows_by_choice(const HistoryRun& run) {
  std::map<std::string, ChosenRows> choices;
  const auto put = [&](const std::string& choice, const SweepRow& row) {
    const SweepRow*& known = choices[choice][row.op + "|" + row.dtype + "|" + row.problem];
    if (known == nullptr || *row.time_cold_us < *known->time_cold_us) known = &row;
  };
  for (const SweepRow& row : run.files.rows) {
    if (row.status != Outcome::ok) continue;
    put(row.variant, row);
    put(kFastest, row);
    if (row.kind != "baseline") put(kOwnBest, row);
  }
  return choices;
}

// Time x count over all of the problems; nothing where one has no time. Its i-th sample is a forward pass made of one
// sample of each problem, picked evenly over those that were taken.
std::optional<RunValue> total_of(const HistoryRun& run, const std::vector<NetworkProblem>& needs,
                                 const std::string& dtype, const ChosenRows& rows, bool warm) {
  RunValue total;
  total.samples.assign(kPasses, 0);
  for (const NetworkProblem& need : needs) {
    const auto found = rows.find(need.op + "|" + dtype + "|" + need.problem);
    const auto time = found == rows.end() ? std::nullopt : time_of(*found->second, warm);
    if (!time) return std::nullopt;
    const auto count = static_cast<double>(need.count);
    total.value += *time * count;
    const auto samples = samples_of(run, *found->second, warm);
    if (samples.empty()) total.samples.clear();
    for (std::size_t i = 0; i < total.samples.size(); ++i)
      total.samples[i] += samples[i * samples.size() / kPasses] * count;
  }
  return total;
}

void trace_totals(const HistoryRun& run, std::size_t index, const HistorySelection& selection, Traces& traces) {
  std::map<std::pair<std::string, std::string>, std::vector<NetworkProblem>> needs;  // network, op
  for (const NetworkProblem& problem : run.problems)
    if (chosen(selection.networks, problem.network) && chosen(selection.ops, problem.op))
      needs[{problem.network, problem.op}].push_back(problem);
  std::set<std::string> dtypes;
  for (const SweepRow& row : run.files.rows) dtypes.insert(row.dtype);
  for (const auto& [choice, rows] : rows_by_choice(run)) {
    if (selection.variants.empty() ? choice != kOwnBest : !chosen(selection.variants, choice)) continue;
    for (const auto& [where, problems] : needs)
      for (const std::string& dtype : dtypes)
        if (const auto total = total_of(run, problems, dtype, rows, selection.warm))
          traces[{run.files.environment.device, fmt::format("{}/{}/{}/{}", where.first, where.second, dtype, choice)}]
              .values[index] = *total;
  }
}

HistorySeries series_of(const std::string& device, const std::string& name, const Traced& traced,
                        const std::vector<std::size_t>& runs_of_device, const ChangeRule& rule) {
  HistorySeries series{name, device, runs_of_device, {}, {}};
  std::vector<RunValue> present;
  std::vector<std::size_t> place;
  for (std::size_t i = 0; i < runs_of_device.size(); ++i) {
    const auto found = traced.values.find(runs_of_device[i]);
    series.values.push_back(found == traced.values.end() ? std::nullopt : std::optional(found->second.value));
    if (found == traced.values.end()) continue;
    present.push_back(found->second);
    place.push_back(i);
  }
  series.changes = change_points(present, rule);
  for (ChangePoint& change : series.changes) change.index = place[change.index];
  return series;
}

}  // namespace

std::vector<HistoryRun> read_history(const std::vector<fs::path>& folders) {
  std::vector<HistoryRun> runs;
  for (const fs::path& folder : run_folders(folders)) runs.push_back(read_history_run(folder));
  std::sort(runs.begin(), runs.end(), [](const HistoryRun& a, const HistoryRun& b) {
    // ISO 8601 in UTC sorts as text.
    return std::tie(a.files.environment.time_utc, a.files.folder) <
           std::tie(b.files.environment.time_utc, b.files.folder);
  });
  return runs;
}

History trace_history(const std::vector<HistoryRun>& runs, const HistorySelection& selection) {
  std::regex pattern;
  try {
    pattern = std::regex(selection.case_pattern, std::regex::extended);
  } catch (const std::regex_error&) {
    throw std::runtime_error(fmt::format("--case: '{}' is no regular expression", selection.case_pattern));
  }
  Traces traces;
  std::map<std::string, std::vector<std::size_t>> by_device;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    by_device[runs[i].files.environment.device].push_back(i);
    if (selection.case_pattern.empty())
      trace_totals(runs[i], i, selection, traces);
    else
      trace_cases(runs[i], i, selection, pattern, traces);
  }
  if (traces.empty()) {
    std::set<std::string> networks, ops;
    for (const HistoryRun& run : runs)
      for (const NetworkProblem& use : run.problems) {
        networks.insert(use.network);
        ops.insert(use.op);
      }
    throw std::runtime_error(fmt::format("no {} of these runs matches; their networks are {}, their ops {}",
                                         selection.case_pattern.empty() ? "complete total" : "timed case",
                                         fmt::join(networks, ", "), fmt::join(ops, ", ")));
  }
  ChangeRule rule;
  rule.series_compared = traces.size();
  History history;
  for (const auto& [device, indices] : by_device)
    history.order.insert(history.order.end(), indices.begin(), indices.end());
  for (const auto& [key, traced] : traces)
    history.series.push_back(series_of(key.first, key.second, traced, by_device.at(key.first), rule));
  return history;
}

}  // namespace noisefloor
