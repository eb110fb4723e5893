// What a forward pass of each network takes: time x count over its problems. The one place that adds up; totals.csv,
// the terminal, the page, the plots, history, compare and README's table have their figures from here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/run/network_problems.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Choices beside the variants themselves: of each problem the row that is fastest by cold time.
inline constexpr const char* kOwnBest = "own best";  // of all that are not baselines
inline constexpr const char* kLibrary = "library";   // of the baselines that this program runs: cuDNN, cuBLASLt
inline constexpr const char* kPyTorch = "pytorch";   // of PyTorch's, eager and compiled
inline constexpr const char* kFastest = "fastest";   // of all

// The op whose problems are whole networks: they run under a plan, and have no place in one.
inline constexpr const char* kWholeNetwork = "network";
// Stands for all ops of a network together, the whole network not counted again.
inline constexpr const char* kAllOps = "all ops";

bool is_timed(const SweepRow& row);  // ok, with a cold time

// `missing` counts problems of the network that the choice has no ok row for: the sums leave them out.
struct NetworkTotal {
  std::string network, op, dtype, choice;
  bool set = false;                // the network is a set of problems: the sum is over them, and not a forward pass
  std::string kind = {};           // of the choice's rows; empty for choices that mix variants
  double microseconds = 0;         // cold
  double warm_microseconds = 0;    // of the same rows
  double serial_microseconds = 0;  // warm, with ordinary edges
  int problems = 0, missing = 0, warm_missing = 0, serial_missing = 0;
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
  struct Plain {
    double microseconds = 0, warm_microseconds = 0, serial_microseconds = 0;
    int shortcuts = 0;
  };
  std::optional<Plain> plain = Plain{};
  std::vector<std::pair<const SweepRow*, long>> parts = {};  // the rows behind it, with their counts
};

// Networks, ops and dtypes in the order in which problems and rows name them; a network's ops, then all of them
// together. Without totals that have no problem timed. `rows` must outlive the totals.
std::vector<NetworkTotal> network_totals(const std::vector<SweepRow>& rows,
                                         const std::vector<NetworkProblem>& problems);

void write_totals_csv(const std::filesystem::path& file, const std::vector<NetworkTotal>& totals);

}  // namespace noisefloor
