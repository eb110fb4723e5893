// The tables that a sweep ends with.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "reports/totals/text_tables.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

constexpr std::size_t kShowAll = 80;  // rows that still read as one table
constexpr std::size_t kProblemWidth = 64;

// Of a network under a plan.
std::string launches_line(const NetworkTotal& total) {
  const NetworkTotal::Launches& launches = *total.launches;
  const double share = 100.0 * static_cast<double>(launches.covered) / static_cast<double>(launches.all);
  const auto sum = [](const std::string& what, double us, const std::optional<double>& ratio) {
    return fmt::format(", {} {:.1f} us in sum{}", what, us,
                       ratio ? fmt::format(" (it takes {:.3f} of that)", *ratio) : "");
  };
  return fmt::format("{} {} {}: warm {:.1f} us; {} of its {} launches have a row ({:.1f} %){}{}\n", total.network,
                     total.dtype, total.choice, total.warm.us, launches.covered, launches.all, share,
                     sum("warm", launches.warm.us, total.over_launches()),
                     launches.weights_cold == 0 ? ""
                                                : sum(fmt::format("weights cold of {}", launches.weights_cold),
                                                      launches.weights_cold_us, total.over_weights_cold()));
}

}  // namespace

std::string row_table(const std::vector<SweepRow>& rows) {
  const auto best_baseline = best_baselines(rows);
  const auto fastest_own = fastest_rows(rows, true);
  const bool all = rows.size() <= kShowAll;
  std::vector<Cells> lines{
      {"op", "problem", "dtype", "variant", "cold us", "warm us", "% roof", "x baseline", "status"}};
  std::size_t left_out = 0;
  for (const SweepRow& row : rows) {
    const bool wrong = is_wrong(row.status);
    const bool best = std::find(fastest_own.begin(), fastest_own.end(), &row) != fastest_own.end();
    const bool baseline = row.kind == "baseline" && row.status == Outcome::ok;
    if (!(all || wrong || best || baseline)) {
      ++left_out;
      continue;
    }
    const auto reference = best_baseline.find(row);
    std::optional<double> ratio;  // above 1: faster than the best baseline
    if (row.time_cold_us && reference != best_baseline.end()) ratio = reference->second / *row.time_cold_us;
    lines.push_back({row.op, clipped(row.problem, kProblemWidth), row.dtype, row.variant,
                     cell_of(row.time_cold_us, "{:.2f}"), cell_of(row.time_warm_us, "{:.2f}"),
                     cell_of(row.pct_of_roof, "{:.1f}"), cell_of(ratio, "{:.2f}"),
                     to_string(row.status) + (row.reason.empty() ? "" : " (" + row.reason + ")")});
  }
  std::string text = aligned(lines);
  if (left_out > 0)
    text +=
        fmt::format("(the best own variant and the baselines of each problem; {} more rows in sweep.csv)\n", left_out);
  return text;
}

std::string totals_table(const std::vector<NetworkTotal>& totals) {
  std::vector<Cells> lines{{"network", "op", "dtype", "variant", "cold us", "warm us", "problems timed", "compared"}};
  // Of one variant alone, as on a host, the best of ours and the fastest of all are its own line again.
  std::map<std::tuple<std::string, std::string, std::string>, int> variants;
  const auto group_of = [](const NetworkTotal& total) { return std::tuple(total.network, total.op, total.dtype); };
  for (const NetworkTotal& total : totals) variants[group_of(total)] += total.kind.empty() ? 0 : 1;
  for (const NetworkTotal& total : totals) {
    if (total.kind.empty() && variants.at(group_of(total)) == 1) continue;
    if (total.op == kAllOps || total.choice == kLibrary || total.choice == kPyTorch)
      continue;  // sums of the lines here
    const bool whole = total.warm.missing == total.cold.missing;
    const bool judged = total.won + total.lost + total.equal + total.unresolved > 0;
    lines.push_back({total.network, total.op, total.dtype, total.choice, fmt::format("{:.1f}", total.cold.us),
                     whole ? fmt::format("{:.1f}", total.warm.us) : "-",
                     fmt::format("{} of {}", total.problems - total.cold.missing, total.problems),
                     judged ? fmt::format("won {}, lost {}, equal {}, unresolved {}", total.won, total.lost,
                                          total.equal, total.unresolved)
                            : ""});
  }
  std::string text = aligned(lines);
  for (const NetworkTotal& total : totals)
    if (total.launches && !total.kind.empty()) text += launches_line(total);
  return text;
}

}  // namespace noisefloor
