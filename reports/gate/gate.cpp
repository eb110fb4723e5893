#include "reports/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "reports/gate/mann_whitney.h"
#include "reports/gate/spread.h"
#include "reports/run/load.h"

namespace noisefloor {
namespace {

std::string joined(const std::set<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// The one device of a run's rows. A gate is about one.
std::string device_of(const RunFiles& run) {
  if (run.rows.empty()) throw std::runtime_error(fmt::format("{}: the run has no rows", run.folder.string()));
  std::set<std::string> devices;
  for (const SweepRow& row : run.rows) devices.insert(row.device);
  if (devices.size() > 1)
    throw std::runtime_error(
        fmt::format("{}: holds rows of more than one device: {}", run.folder.string(), joined(devices)));
  return *devices.begin();
}

void require_same_device(const RunFiles& baseline, const RunFiles& other) {
  const std::string before = device_of(baseline), after = device_of(other);
  if (before != after)
    throw std::runtime_error(
        fmt::format("{} is of '{}', {} of '{}': different devices cannot be held against each "
                    "other; noisefloor compare shows both",
                    baseline.folder.string(), before, other.folder.string(), after));
}

bool is_ok(const SweepRow* row) {
  return row != nullptr && row->status == Outcome::ok;
}
bool is_broken(const SweepRow* row) {
  return row != nullptr && (row->status == Outcome::incorrect || row->status == Outcome::cuda_error);
}

std::string state_of(const SweepRow* row) {
  if (row == nullptr) return "missing";
  return to_string(row->status) + (row->reason.empty() || is_ok(row) ? "" : " (" + row->reason + ")");
}

std::optional<GateGap> gap_of(const RowPair& pair, const GateOptions& options) {
  using Weight = GateGap::Weight;
  const std::string what = fmt::format("{} in the baseline, {} in the candidate", state_of(pair.a), state_of(pair.b));
  if (is_broken(pair.b)) return GateGap{pair, is_broken(pair.a) ? Weight::noted : Weight::fails, what};
  if (is_ok(pair.a)) return GateGap{pair, Weight::blocks, what};
  if (is_ok(pair.b)) return GateGap{pair, options.new_rows ? Weight::noted : Weight::blocks, what};
  return std::nullopt;
}

// Why nothing at all can be compared.
std::string nothing_in_common(const RunFiles& a, const RunFiles& b) {
  const auto said = [](const RunFiles& run) {
    std::set<std::string> dtypes, ops;
    for (const SweepRow& row : run.rows) {
      dtypes.insert(row.dtype);
      ops.insert(row.op);
    }
    return fmt::format("{} has {} in {}", run.folder.string(), joined(ops), joined(dtypes));
  };
  return fmt::format("no row is ok in both runs: {}; {}", said(a), said(b));
}

// The spread between processes, and in words where it is from.
Spread spread_of(const RunFiles& baseline, std::span<const RunFiles> noise, std::string& source) {
  const std::string device = device_of(baseline);
  const auto file = baseline.folder / kSpreadFile;
  Spread spread;
  if (!noise.empty()) {
    std::vector<const RunFiles*> runs{&baseline};
    for (const RunFiles& run : noise) runs.push_back(&run);
    spread = measure_spread(runs);
    source = fmt::format("measured, of {} runs", runs.size());
  } else if (std::filesystem::exists(file)) {
    spread = read_spread(file);
    if (spread.device != device)
      throw std::runtime_error(fmt::format("{}: is of '{}', the runs of '{}'", file.string(), spread.device, device));
    source = fmt::format("of {}, from {} runs", file.string(), spread.sweeps.size());
  } else if (auto recorded = recorded_spread(device)) {
    spread = std::move(*recorded);
    source = fmt::format("as recorded for {}, from {} runs", device, spread.sweeps.size());
  } else {
    source = "assumed; --noise with more runs of the baseline measures it, --spread keeps it";
  }
  if (!spread.sweeps.empty() && spread.classes.empty()) source += "; too few rows to measure it, so it is assumed";
  spread.of_host = of_host(baseline);
  return spread;
}

// An assumed spread is that of a machine that does nothing else.
Conditions conditions_of(const RowPair& pair, bool beside_others, bool spread_measured) {
  Conditions conditions;
  conditions.beside_others = beside_others && !spread_measured;
  conditions.places_a = pair.a->places.value_or(1);
  conditions.places_b = pair.b->places.value_or(1);
  for (const SweepRow* row : {pair.a, pair.b}) {
    conditions.at_power_cap |= row->throttle.find("sw_power_cap") != std::string::npos;
    conditions.beside_others |= !spread_measured && row->load.value_or(0) >= kLoaded;
  }
  return conditions;
}

void join(std::string& text, const std::string& more) {
  text += (text.empty() ? "" : "; ") + more;
}

// Either phase regresses a row.
void decide(GateRow& row) {
  // Processes differ more in cold times: what is within their spread there has passed where warm times, which would
  // have shown less, say so.
  if (row.cold.within_noise && row.warm && row.warm->verdict == GateVerdict::pass &&
      std::max(kGateChange, row.change.warm->noise + row.change.warm->edge_doubt) < std::abs(row.change.cold.change))
    row.cold.verdict = GateVerdict::pass;
  std::vector<Phase> phases{Phase::cold};
  if (row.warm) phases.insert(phases.begin(), Phase::warm);
  const auto any = [&](GateVerdict verdict, bool slower) {
    return std::ranges::any_of(phases, [&](Phase phase) {
      return row.of(phase).verdict == verdict && (row.change_of(phase).change > 0) == slower;
    });
  };
  if (any(GateVerdict::regressed, true))
    row.verdict = GateVerdict::regressed;
  else if (any(GateVerdict::ambiguous, true))
    row.verdict = GateVerdict::ambiguous;
  else if (any(GateVerdict::improved, false))
    row.verdict = GateVerdict::improved;
  else if (any(GateVerdict::ambiguous, false))
    row.verdict = GateVerdict::ambiguous;
  if (row.verdict == GateVerdict::pass) return;
  for (const Phase phase : phases)
    if (row.of(phase).verdict == row.verdict) row.by.push_back(phase);
  for (const Phase phase : row.by)
    if (const std::string& reason = row.of(phase).reason; !reason.empty())
      join(row.reason, (row.by.size() > 1 ? std::string(to_string(phase)) + ": " : "") + reason);
}

}  // namespace

double GateRow::slowdown() const {
  if (by.empty()) return std::max(change.cold.change, change.warm ? change.warm->change : change.cold.change);
  double most = change_of(by.front()).change;
  for (const Phase phase : by) most = std::max(most, change_of(phase).change);
  return most;
}

std::size_t GateResult::count(GateVerdict verdict) const {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [&](const GateRow& row) { return row.verdict == verdict; }));
}

std::size_t GateResult::count(GateGap::Weight weight) const {
  return static_cast<std::size_t>(
      std::count_if(gaps.begin(), gaps.end(), [&](const GateGap& gap) { return gap.weight == weight; }));
}

std::size_t GateResult::much_slower_ambiguous() const {
  return static_cast<std::size_t>(std::ranges::count_if(rows, [](const GateRow& row) {
    return row.verdict == GateVerdict::ambiguous && row.slowdown() > kStrictChange;
  }));
}

int GateResult::exit_code() const {
  if (count(GateVerdict::regressed) > 0 || count(GateGap::Weight::fails) > 0) return 1;
  if ((strict && much_slower_ambiguous() > 0) || (gates_launches && launches.ours() > 0)) return 1;
  return count(GateGap::Weight::blocks) > 0 ? 2 : 0;
}

GateResult gate(const RunFiles& baseline, const RunFiles& candidate, std::span<const RunFiles> noise,
                const GateOptions& options) {
  require_same_device(baseline, candidate);
  GateResult result;
  result.device = device_of(baseline);
  result.differences = environment_differences(baseline, candidate);
  result.strict = options.strict;
  result.gates_launches = options.launches;
  const Spread spread = spread_of(baseline, noise, result.spread);
  for (const RunFiles* run : {&baseline, &candidate})
    if (noise.empty() && std::ranges::find(spread.sweeps, sweep_name(*run)) != spread.sweeps.end())
      result.differences.push_back(fmt::format(
          "{} is one of the runs that the spread is from: it does not test the gate", run->folder.string()));
  const auto pairs = pair_rows(baseline, candidate, options.pairs);
  // One family of tests for all rows and both phases: a row that fails by either has had two chances.
  std::vector<double> p, p_cycles;
  const auto test = [&](const RowPair& pair, Phase phase) {
    const auto samples = phase_samples(baseline, candidate, pair, phase);
    p.push_back(mann_whitney_p(samples->a.us, samples->b.us));
    p_cycles.push_back(mann_whitney_p(samples->a.cycles, samples->b.cycles));
  };
  for (const RowPair& pair : pairs) {
    if (!is_ok(pair.a) || !is_ok(pair.b)) {
      if (auto gap = gap_of(pair, options))
        result.gaps.push_back(std::move(*gap));
      else
        ++result.untimed;
      continue;
    }
    GateRow row;
    row.change = row_change(baseline, candidate, pair);
    test(pair, Phase::cold);
    if (row.change.warm)
      row.warm.emplace(), test(pair, Phase::warm);
    else
      ++result.cold_alone;
    result.rows.push_back(std::move(row));
  }
  if (result.rows.empty()) throw std::runtime_error(nothing_in_common(baseline, candidate));
  const auto corrected = holm_adjusted(p), corrected_cycles = holm_adjusted(p_cycles);
  const bool beside_others = load_of(baseline.rows) >= kLoaded || load_of(candidate.rows) >= kLoaded;
  std::size_t next = 0;
  for (GateRow& row : result.rows) {
    const auto judge_phase = [&](PhaseVerdict& verdict, PhaseChange& change, Phase phase) {
      const double us = std::min(change.a_us, change.b_us), processes = spread.threshold(*row.change.rows.a, phase, us);
      const Conditions conditions = conditions_of(row.change.rows, beside_others, spread.measured(phase, us));
      for (double* noise_of : {&change.noise, &change.cycle_noise}) *noise_of = std::max(*noise_of, processes);
      verdict.p = corrected[next];
      verdict.p_cycles = corrected_cycles[next++];
      judge(verdict, change, phase, conditions);
    };
    judge_phase(row.cold, row.change.cold, Phase::cold);
    if (row.warm) judge_phase(*row.warm, *row.change.warm, Phase::warm);
    decide(row);
  }
  std::stable_sort(result.rows.begin(), result.rows.end(), [](const GateRow& a, const GateRow& b) {
    return a.verdict != b.verdict ? a.verdict < b.verdict : a.slowdown() > b.slowdown();
  });
  std::stable_sort(result.gaps.begin(), result.gaps.end(),
                   [](const GateGap& a, const GateGap& b) { return a.weight < b.weight; });
  result.totals = total_changes(baseline, candidate, options.pairs);
  result.launches = launch_changes(baseline, candidate, pairs);
  if (options.launches && result.launches.compared == 0)
    throw std::runtime_error("--launches: no row whose kernels both runs recorded");
  return result;
}

}  // namespace noisefloor
