#include "reports/totals/totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "reports/run/csv.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

struct Best {
  const SweepRow* cold = nullptr;
  const SweepRow* warm = nullptr;  // null: no row has a warm time
};
using ByChoice = std::map<std::string, Best>;
using Chosen = std::map<ProblemId, ByChoice>;

void put(Chosen& chosen, const SweepRow& row, const std::string& choice) {
  Best& best = chosen[row][choice];
  if (best.cold == nullptr || *row.time_cold_us < *best.cold->time_cold_us) best.cold = &row;
  if (row.time_warm_us && (best.warm == nullptr || *row.time_warm_us < *best.warm->time_warm_us)) best.warm = &row;
}

// What an op's rows have, in the order met.
struct OpRows {
  std::vector<std::string> variants, dtypes;
  std::map<std::string, std::string> kinds;  // by variant
};

constexpr const char* kNoShortcut = "none";  // in the column shortcut

// The fastest baseline, for totals of ours, and the other way round.
constexpr const char* kBestBaseline = "best baseline";
bool is_baseline(const NetworkTotal& total) {
  return total.kind == "baseline" || total.choice == kLibrary || total.choice == kPyTorch;
}

// How much faster than the other side; nothing without warm times. Of two that were compared, the row that was written
// first may not say so.
std::optional<Ratio> ratio_of(const SweepRow* mine, bool met_other_side, const SweepRow* other) {
  if (mine == nullptr || other == nullptr) return std::nullopt;
  if (const auto paired = paired_ratio(*mine, *other)) return paired;
  if (const auto own = warm_ratio(*mine); own && met_other_side) return own;
  const double ratio = *other->time_warm_us / *mine->time_warm_us;
  // Medians that were taken apart have no interval: alike is equal, anything else is what it seems.
  const bool alike = std::max(ratio, 1 / ratio) <= 1 + kAlike;
  return alike ? Ratio{ratio, 1, 1} : Ratio{ratio, ratio, ratio};
}

// As PairVerdict has them.
constexpr int NetworkTotal::*kVerdictCounts[] = {&NetworkTotal::won, &NetworkTotal::lost, &NetworkTotal::equal,
                                                 &NetworkTotal::unresolved};

void judge(NetworkTotal& total, const std::optional<Ratio>& ratio, const std::string& problem) {
  ++(total.*kVerdictCounts[static_cast<std::size_t>(ratio ? verdict_of(*ratio) : PairVerdict::unresolved)]);
  if (!ratio || (total.worst_ratio && 1 / ratio->value <= *total.worst_ratio)) return;
  total.worst_ratio = 1 / ratio->value;
  total.worst_problem = problem;
}

void add_row(NetworkSums& sums, const SweepRow& row, double count) {
  const std::optional<double> times[] = {row.time_cold_us, row.time_warm_us, row.time_warm_serial_us};
  for (std::size_t i = 0; i < std::size(times); ++i) {
    NetworkSums::Sum& sum = sums.*kTotalTimes[i].second;
    sum.us += times[i].value_or(0) * count;
    sum.missing += !times[i];
  }
}

// Of fewer the sum lacks what would be seen in the ratio.
bool nearly_all(long covered, long all) {
  constexpr double kNearlyAll = 0.97;
  return covered > 0 && static_cast<double>(covered) >= kNearlyAll * static_cast<double>(all);
}

// Rows that are timed, by name.
using TimedRows = std::unordered_map<std::string, const SweepRow*>;

void add_weights_cold(NetworkTotal::Launches& launches, const SweepRow& row, long count) {
  const bool no_weights = !row.time_weights_cold_us && (";" + row.phases).find(";weights=") != std::string::npos;
  const Figure us = no_weights ? row.time_warm_us : row.time_weights_cold_us,
               mhz = no_weights ? row.warm_clock_mhz : row.weights_clock_mhz;
  if (!us) return;
  launches.weights_cold += count;
  launches.weights_cold_us += *us * static_cast<double>(count);
  if (mhz && launches.weights_cold_cycles)
    *launches.weights_cold_cycles += *us * *mhz * static_cast<double>(count);
  else
    launches.weights_cold_cycles.reset();
}

NetworkTotal::Launches sum_of_launches(const RowSamples& network, const TimedRows& timed) {
  NetworkTotal::Launches launches;
  for (std::size_t i = 0; i < network.launches.size(); ++i) {
    const auto count = static_cast<long>(network.launch_counts[i]);
    launches.all += count;
    const auto row = timed.find(network.launches[i]);
    if (row == timed.end()) continue;
    launches.covered += count;
    add_row(launches, *row->second, static_cast<double>(count));
    add_weights_cold(launches, *row->second, count);
  }
  return launches;
}

void add_problem(NetworkTotal& total, const ByChoice& by_choice, const NetworkProblem& need) {
  const auto found = by_choice.find(total.choice);
  if (found == by_choice.end()) {
    for (const auto& [name, sum] : kTotalTimes) ++(total.*sum).missing;
    return;
  }
  const SweepRow& row = *found->second.cold;
  const auto count = static_cast<double>(need.count);
  total.parts.emplace_back(&row, need.count);
  add_row(total, row, count);
  if (row.shortcut.empty()) total.plain.reset();
  if (total.plain && row.shortcut != kNoShortcut)
    ++total.plain->shortcuts;
  else if (total.plain)
    add_row(*total.plain, row, count);
  const auto other = by_choice.find(is_baseline(total) ? kOwnBest : kBestBaseline);
  if (other == by_choice.end()) return;
  const SweepRow* const mine = found->second.warm;
  // The fastest of all may be a baseline itself, which met ours.
  const bool met_other_side = mine != nullptr && (mine->kind == "baseline") == is_baseline(total);
  judge(total, ratio_of(mine, met_other_side, other->second.warm), need.problem);
}

void add_total(NetworkTotal& sum, const NetworkTotal& part) {
  if (!part.plain) sum.plain.reset();
  for (const auto& [name, time] : kTotalTimes) {
    (sum.*time).us += (part.*time).us;
    (sum.*time).missing -= part.problems - (part.*time).missing;
    if (sum.plain) ((*sum.plain).*time).us += ((*part.plain).*time).us;
  }
  if (sum.plain) sum.plain->shortcuts += part.plain->shortcuts;
  for (int NetworkTotal::*const count : kVerdictCounts) sum.*count += part.*count;
  sum.parts.insert(sum.parts.end(), part.parts.begin(), part.parts.end());
  if (!part.worst_ratio || (sum.worst_ratio && *part.worst_ratio <= *sum.worst_ratio)) return;
  sum.worst_ratio = part.worst_ratio;
  sum.worst_problem = part.op + " " + part.worst_problem;
}

// Of the choices that mix variants; nothing where the run has rows of one op alone.
std::vector<NetworkTotal> totals_of_all_ops(const std::vector<NetworkTotal>& totals, const std::string& network,
                                            int problems) {
  std::set<std::string> ops;
  std::vector<NetworkTotal> sums;
  for (const NetworkTotal& total : totals) {
    if (total.network != network || total.op == kWholeNetwork) continue;
    ops.insert(total.op);
    if (!total.kind.empty()) continue;
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const NetworkTotal& known) {
      return known.dtype == total.dtype && known.choice == total.choice;
    });
    if (sum == sums.end()) {
      NetworkTotal empty{{}, network, kAllOps, total.dtype, total.choice, total.set, ""};
      empty.problems = empty.cold.missing = empty.warm.missing = empty.serial.missing = problems;
      sum = sums.insert(sums.end(), empty);
    }
    add_total(*sum, total);
  }
  if (ops.size() < 2) sums.clear();
  return sums;
}

}  // namespace

std::optional<Ratio> warm_ratio(const SweepRow& row) {
  if (row.paired_with.empty() || !row.speedup_warm || !row.speedup_warm_low || !row.speedup_warm_high)
    return std::nullopt;
  return Ratio{*row.speedup_warm, *row.speedup_warm_low, *row.speedup_warm_high};
}

std::optional<Ratio> paired_ratio(const SweepRow& row, const SweepRow& other) {
  const auto own = warm_ratio(row), theirs = warm_ratio(other);
  if (own && row.paired_with == other.variant) return own;
  return theirs && other.paired_with == row.variant ? std::optional(theirs->inverse()) : std::nullopt;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::count(names, name) == 0) names.push_back(name);
}

bool is_timed(const SweepRow& row) {
  return row.status == Outcome::ok && row.time_cold_us.has_value();
}

std::optional<double> NetworkTotal::over_launches() const {
  const bool comparable =
      launches && warm.missing == 0 && launches->warm.missing == 0 && nearly_all(launches->covered, launches->all);
  return comparable ? std::optional(warm.us / launches->warm.us) : std::nullopt;
}

std::optional<double> NetworkTotal::over_weights_cold() const {
  if (!launches || warm.missing > 0 || !nearly_all(launches->weights_cold, launches->all)) return std::nullopt;
  const Figure& mhz = parts.front().first->warm_clock_mhz;
  if (mhz && launches->weights_cold_cycles) return warm.us * *mhz / *launches->weights_cold_cycles;
  return warm.us / launches->weights_cold_us;
}

std::vector<NetworkTotal> network_totals(const std::vector<SweepRow>& rows,
                                         const std::vector<NetworkProblem>& network_problems,
                                         const std::map<CaseId, RowSamples>& samples) {
  Chosen chosen;
  TimedRows timed;
  std::map<std::string, OpRows> ops;
  for (const SweepRow& row : rows) {
    OpRows& of_op = ops[row.op];
    add_once(of_op.dtypes, row.dtype);
    add_once(of_op.variants, row.variant);
    of_op.kinds[row.variant] = row.kind;
    if (!is_timed(row)) continue;
    timed[row.name()] = &row;
    put(chosen, row, row.variant);
    if (!row.lossy.empty()) continue;
    put(chosen, row, kFastest);
    const bool baseline = row.kind == "baseline";
    put(chosen, row, baseline ? kBestBaseline : kOwnBest);
    if (baseline && of_pytorch(row)) put(chosen, row, kPyTorch);
    if (baseline && !of_worker(row) && row.plugin.empty() && row.op != kWholeNetwork) put(chosen, row, kLibrary);
  }
  std::vector<std::vector<const NetworkProblem*>> groups;  // of one network and op
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  std::vector<std::string> networks;
  std::map<std::string, int> problems_of;  // but for the network itself
  for (const NetworkProblem& need : network_problems) {
    const auto [place, is_new] = places.try_emplace({need.network, need.op}, groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(&need);
    add_once(networks, need.network);
    if (need.op != kWholeNetwork) ++problems_of[need.network];
  }

  std::vector<NetworkTotal> totals;
  for (const auto& group : groups) {
    const NetworkProblem& first = *group.front();
    const OpRows& of_op = ops[first.op];
    std::vector<std::string> choices = of_op.variants;
    choices.insert(choices.end(), {kOwnBest, kLibrary, kPyTorch, kFastest});
    for (const std::string& dtype : of_op.dtypes)
      for (const std::string& choice : choices) {
        const auto kind = of_op.kinds.find(choice);
        NetworkTotal total{
            {}, first.network, first.op, dtype, choice, first.set, kind == of_op.kinds.end() ? "" : kind->second};
        total.problems = static_cast<int>(group.size());
        for (const NetworkProblem* need : group) add_problem(total, chosen[{need->op, need->problem, dtype}], *need);
        if (total.cold.missing == total.problems) continue;
        const auto taken = samples.find(*total.parts.front().first);
        if (first.op == kWholeNetwork && group.size() == 1 && taken != samples.end() && !taken->second.launches.empty())
          total.launches = sum_of_launches(taken->second, timed);
        totals.push_back(std::move(total));
      }
  }
  for (const std::string& network : networks) {
    const auto sums = totals_of_all_ops(totals, network, problems_of[network]);
    totals.insert(totals.end(), sums.begin(), sums.end());
  }
  return totals;
}

void write_totals_csv(const fs::path& file, const std::vector<NetworkTotal>& totals) {
  std::string text =
      "network,set,op,dtype,choice,kind,cold_us,warm_us,problems,missing,warm_missing,won,lost,equal,unresolved,"
      "worst_ratio,worst_problem,shortcuts,plain_cold_us,plain_warm_us,serial_us,serial_missing,plain_serial_us,"
      "launches,covered,launches_cold_us,launches_warm_us,launches_serial_us,over_launches,"
      "launches_weights_cold_us,over_weights_cold\n";
  const auto us = [](double value) { return fmt::format("{:.9g}", value); };
  for (const NetworkTotal& total : totals) {
    const auto plain = [&](const NetworkSums::Sum NetworkSums::*time) {
      return total.plain ? us(((*total.plain).*time).us) : "";
    };
    std::vector<std::string> fields = {total.network,     total.set ? "yes" : "", total.op,
                                       total.dtype,       total.choice,           total.kind,
                                       us(total.cold.us), us(total.warm.us)};
    for (const int count :
         {total.problems, total.cold.missing, total.warm.missing, total.won, total.lost, total.equal, total.unresolved})
      fields.push_back(std::to_string(count));
    fields.insert(fields.end(), {total.worst_ratio ? fmt::format("{:.4g}", *total.worst_ratio) : "",
                                 total.worst_problem, total.plain ? std::to_string(total.plain->shortcuts) : "",
                                 plain(&NetworkSums::cold), plain(&NetworkSums::warm), us(total.serial.us),
                                 std::to_string(total.serial.missing), plain(&NetworkSums::serial)});
    const auto launched = [&](const std::string& field) { fields.push_back(total.launches ? field : ""); };
    const auto launches = total.launches.value_or(NetworkTotal::Launches{});
    for (const long count : {launches.all, launches.covered}) launched(std::to_string(count));
    for (const auto& [name, time] : kTotalTimes) launched(us((launches.*time).us));
    const auto ratio = [](const std::optional<double>& of) { return of ? fmt::format("{:.4g}", *of) : ""; };
    launched(ratio(total.over_launches()));
    launched(total.over_weights_cold() ? us(launches.weights_cold_us) : "");
    launched(ratio(total.over_weights_cold()));
    text += csv_line(fields);
  }
  write_atomically(file, text);
}

}  // namespace noisefloor
