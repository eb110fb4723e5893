// The trend of cases, or of networks' totals, over recorded runs.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"

namespace noisefloor {

// A run folder. Without samples.jsonl, `files.samples` is empty.
struct HistoryRun {
  RunFiles files;
  double time = 0;         // seconds since 1970
  std::size_t number = 0;  // from 1, among those of its device
  std::vector<NetworkProblem> problems;
};

// The runs of the folders, by device, then in the order of env.json's time. A folder that is not a run stands for the
// runs right in it. What a command was writing when it was killed (RUN.<process>.partial) is no run, and passed over.
// Throws std::runtime_error naming a folder without runs, one that is given twice, a run without rows or with no time,
// or a file that is not what it should be.
std::vector<HistoryRun> read_history(const std::vector<fs::path>& folders);

struct HistorySelection {
  std::string case_pattern = {};  // a regular expression, found in op/problem/dtype/variant; empty: totals of networks
  std::vector<std::string> networks = {};  // empty: all
  std::vector<std::string> ops = {};
  // Of totals also "own best" and "fastest". Empty: "own best" of totals, all of cases.
  std::vector<std::string> variants = {};
  bool warm = false;
};

// One run's value in a series, microseconds: the median, and its interval of three standard deviations.
struct RunValue {
  double value = 0, low = 0, high = 0;
};
struct ChangePoint {
  std::size_t index;     // the first run of the new level
  double before, after;  // medians of the runs from the change before to the change after
};
// A run that lies apart from the level before it begins the next: by more than both of these, and so do the intervals.
// Then levels whose runs are all known join where they do not lie apart after all, the closest two first.
inline constexpr double kLeastChange = 0.03, kLeastChangeUs = 0.5;
std::vector<ChangePoint> changes_of(std::span<const RunValue> runs);

// One line of the trend: a case, or an op's part of a network's total.
struct HistorySeries {
  std::string name;                           // "gemm/m=1,n=768,k=192/bf16/ptx_sm90a", "adm64-b1/gemm/bf16/own best"
  std::string device;                         // runs of two devices are never in one series
  std::vector<std::size_t> runs;              // indices of the runs of this device
  std::vector<std::optional<double>> values;  // microseconds, one a run; nothing: the run has no time of it, or not all
  std::vector<ChangePoint> changes;           // ChangePoint::index is an index into `runs`
};

using History = std::vector<HistorySeries>;

// Throws std::runtime_error where the pattern is none, or where nothing matches, naming what there is.
History trace_history(const std::vector<HistoryRun>& runs, const HistorySelection& selection);

// Text for the terminal: runs, a line a series with its last values (a '*' where it changed), and the changes.
std::string history_table(const std::vector<HistoryRun>& runs, const History& history);
// A line a series and run: device,series,run,time_utc,commit,time_us,changed_pct.
std::string history_csv(const std::vector<HistoryRun>& runs, const History& history);
// The page; `message`, where given, gets what to do about a plotting library that was not found.
std::string history_html(const std::vector<HistoryRun>& runs, const History& history, bool warm, std::string* message);

}  // namespace noisefloor
