// What a forward pass of each network takes: time x count over its problems. The one place that adds up; totals.csv,
// the terminal, the page, the plots, history, compare and README's table have their figures from here.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/run/ceilings_csv.h"
#include "reports/run/network_problems.h"
#include "reports/run/pair_ratio.h"
#include "reports/run/run_files.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Choices beside the variants themselves: of each problem the row that is fastest by cold time.
inline constexpr const char* kOwnBest = "own best";  // of all that are not baselines
inline constexpr const char* kLibrary = "library";   // of the baselines that this program runs: cuDNN, cuBLASLt
inline constexpr const char* kPyTorch = "pytorch";   // of PyTorch's, eager and compiled
inline constexpr const char* kFastest = "fastest";   // of all that are not lossy

// The op whose problems are whole networks: they run under a plan, and have no place in one.
inline constexpr const char* kWholeNetwork = "network";
// Stands for all ops of a network together, the whole network not counted again.
inline constexpr const char* kAllOps = "all ops";

bool is_timed(const SweepRow& row);  // ok, with a cold time
void add_once(std::vector<std::string>& names, const std::string& name);
// How much faster a row is, warm, than what it was compared with, or than `other`, of which either row may say it.
std::optional<Ratio> warm_ratio(const SweepRow& row);
std::optional<Ratio> paired_ratio(const SweepRow& row, const SweepRow& other);

struct NetworkSums {
  struct Sum {
    double us = 0;
    int missing = 0;  // problems of the network that the choice has no such time of: the sum leaves them out
  };
  // Of the same rows, the choice's fastest by cold time; serial is warm with ordinary edges.
  Sum cold = {}, warm = {}, serial = {};
};
inline constexpr std::pair<const char*, NetworkSums::Sum NetworkSums::*> kTotalTimes[] = {
    {"cold", &NetworkSums::cold}, {"warm", &NetworkSums::warm}, {"serial", &NetworkSums::serial}};

struct NetworkTotal : NetworkSums {
  std::string network, op, dtype, choice;
  bool set = false;       // the network is a set of problems: the sum is over them, and not a forward pass
  std::string kind = {};  // of the choice's rows; empty for choices that mix variants
  int problems = 0;
  // Problem by problem, warm, against the other side: ours against the fastest baseline, a baseline against our
  // fastest. By the paired comparison where the row had one, else by the medians. A problem that the other side has no
  // time of does not count.
  int won = 0, lost = 0;
  int equal = 0;                           // within kAlike
  int unresolved = 0;                      // a paired comparison that left it open, or no warm times
  std::optional<double> worst_ratio = {};  // largest time over the other side's
  std::string worst_problem = {};
  // The sums without the problems that have a shortcut (kernels/core/cost.h), and how many those are. Empty where a row
  // does not say, as in older files.
  struct Plain : NetworkSums {
    int shortcuts = 0;
  };
  std::optional<Plain> plain = Plain{};
  // Of a whole network under a plan: the rows of the cases that it launched, each times how often, added up. A launch
  // is covered where that very variant has an `ok` row. Empty where the run does not say what was launched.
  struct Launches : NetworkSums {
    long all = 0, covered = 0;
    // Those covered with a time of weights cold, or without weights: such a launch counts with its warm time.
    long weights_cold = 0;
    double weights_cold_us = 0;
    std::optional<double> weights_cold_cycles = 0.0;  // us x MHz; none where a clock is not known
  };
  std::optional<Launches> launches = {};
  // Its warm time over theirs, where nearly all are covered; the second in SM cycles, where clocks are known: a network
  // may run at the power cap, and its launches by themselves below it.
  std::optional<double> over_launches() const, over_weights_cold() const;
  std::vector<std::pair<const SweepRow*, long>> parts = {};  // the rows behind it, with their counts
};

// Networks, ops and dtypes in the order in which problems and rows name them; a network's ops, then all of them
// together. Without totals that have no problem timed. `rows` must outlive the totals. What networks launched stands in
// their rows' samples.
std::vector<NetworkTotal> network_totals(const std::vector<SweepRow>& rows, const std::vector<NetworkProblem>& problems,
                                         const std::map<CaseId, RowSamples>& samples = {});

void write_totals_csv(const fs::path& file, const std::vector<NetworkTotal>& totals);

// Fills attainable_gflops, pct_of_roof and bound of timed rows that lack them (rows of another program, as PyTorch's),
// by the ceilings that the other rows of the same op and dtype name. And adds a column that needs a problem's other
// rows, so that no sweep writes it: 1 for a cold time at the roof, 0.5 for that of the best baseline.
inline constexpr const char* kSolScore = "sol_score";
void complete_rows(std::vector<SweepRow>& rows, const CeilingTable& ceilings);

std::map<ProblemId, double> best_baselines(const std::vector<SweepRow>& rows);  // cold, in us

// The fastest `ok` row of each (op, problem, dtype) by cold time; `own_only` leaves out baselines.
std::vector<const SweepRow*> fastest_rows(const std::vector<SweepRow>& rows, bool own_only);

void write_roofline_csv(const fs::path& file, const std::vector<SweepRow>& rows, const CeilingTable& ceilings);
// Without rows of other programs (torch_*, peer_*) and of whole networks: a pipeline loads the plan.
void write_plan_csv(const fs::path& file, const std::vector<SweepRow>& rows);

// Text for the terminal: a line per row (or, for many rows, the best own variant and the baselines of each problem),
// then the totals.
std::string row_table(const std::vector<SweepRow>& rows);
std::string totals_table(const std::vector<NetworkTotal>& totals);  // op by op; then networks beside their launches

}  // namespace noisefloor
