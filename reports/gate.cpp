#include "reports/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "reports/gate_noise.h"
#include "reports/mann_whitney.h"
#include "reports/statistics.h"

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

// Medians of a row in the runs of the baseline's build.
std::vector<double> medians_of(const RunFiles& baseline, std::span<const RunFiles> noise, const SweepRow& row) {
  std::vector<double> medians{median(baseline.samples_of(row).cold_us)};
  for (const RunFiles& run : noise) {
    const auto found = run.samples.find(row);
    if (found != run.samples.end() && !found->second.cold_us.empty()) medians.push_back(median(found->second.cold_us));
  }
  return medians;
}

bool of_host(const SweepRow& row) {
  return row.kind == "host" || row.load.has_value();
}

// Of the processes of the rows' machine; an H200's and a host's differ in kind.
void take_process_noise(GateResult& result, const std::vector<std::vector<double>>& medians) {
  result.of_host = of_host(*result.rows.front().change.rows.a);
  const auto measured = result.of_host ? host_process_noise(medians) : process_noise(medians);
  result.process_measured = measured.has_value();
  if (result.of_host) {
    result.process_us = measured ? 0 : kAssumedHostProcessUs;
    result.process_share = measured.value_or(kAssumedHostProcessNoise);
  } else {
    result.process_us = measured.value_or(kAssumedProcessNoise);
  }
}

// Whether going from `before` to `after` is a slowdown that can be seen, and by more than `noise`.
bool visible(double before, double after, double floor, double noise) {
  return after / before - 1 > std::max(kGateChange, noise) && after - before > floor;
}

void judge(GateRow& row) {
  const RowChange& change = row.change;
  const bool slower = change.b_us > change.a_us;
  const double fast = std::min(change.a_us, change.b_us), slow = std::max(change.a_us, change.b_us);
  if (!visible(fast, slow, kGateMicroseconds, 0)) {
    row.verdict = GateVerdict::pass;
    return;
  }
  const auto doubt = [&](const std::string& why) { row.reason += (row.reason.empty() ? "" : "; ") + why; };
  if (!visible(fast, slow, kGateMicroseconds, change.noise))
    doubt(fmt::format("within the noise of {:.1f} %", 100 * change.noise));
  if (!(row.p < kGateAlpha)) doubt(fmt::format("p = {:.2g}", row.p));
  if (change.cycle_change) {
    const double ratio = 1 + *change.cycle_change;  // b over a, in cycles
    const double in_cycles = (slower ? ratio : 1 / ratio) - 1;
    const double needed = std::max(kGateChange, change.cycle_noise);
    // The floor in cycles is that of time at the baseline's clock: a difference of `fast` x in_cycles microseconds.
    if (!(in_cycles > needed && fast * in_cycles > kGateMicroseconds))
      doubt(
          fmt::format("{:+.1f} % in SM cycles (noise {:.1f} %)", 100 * *change.cycle_change, 100 * change.cycle_noise));
    else if (!(row.p_cycles < kGateAlpha))
      doubt(fmt::format("p = {:.2g} in SM cycles", row.p_cycles));
  }
  if (!row.reason.empty())
    row.verdict = GateVerdict::ambiguous;
  else
    row.verdict = slower ? GateVerdict::regressed : GateVerdict::improved;
  if (!change.cycle_change) doubt("by time alone: no SM clock");
}

}  // namespace

const char* to_string(GateVerdict verdict) {
  switch (verdict) {
    case GateVerdict::regressed:
      return "regressed";
    case GateVerdict::ambiguous:
      return "ambiguous";
    case GateVerdict::improved:
      return "improved";
    case GateVerdict::pass:
      return "pass";
  }
  return "?";
}

std::size_t GateResult::count(GateVerdict verdict) const {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [&](const GateRow& row) { return row.verdict == verdict; }));
}

std::size_t GateResult::count(GateGap::Weight weight) const {
  return static_cast<std::size_t>(
      std::count_if(gaps.begin(), gaps.end(), [&](const GateGap& gap) { return gap.weight == weight; }));
}

int GateResult::exit_code() const {
  if (count(GateVerdict::regressed) > 0 || count(GateGap::Weight::fails) > 0) return 1;
  return count(GateGap::Weight::blocks) > 0 ? 2 : 0;
}

GateResult gate(const RunFiles& baseline, const RunFiles& candidate, std::span<const RunFiles> noise,
                const GateOptions& options) {
  require_same_device(baseline, candidate);
  for (const RunFiles& run : noise) {
    require_same_device(baseline, run);
    if (run.environment.commit != baseline.environment.commit)
      throw std::runtime_error(fmt::format("{} is of commit {}, the baseline of {}: noise is between runs of one build",
                                           run.folder.string(), run.environment.commit, baseline.environment.commit));
  }
  GateResult result;
  result.device = device_of(baseline);
  result.differences = environment_differences(baseline, candidate);
  std::vector<double> p, p_cycles;
  std::vector<std::vector<double>> medians;  // per row, of the runs of the baseline's build
  for (const RowPair& pair : pair_rows(baseline, candidate, options.pairs)) {
    if (!is_ok(pair.a) || !is_ok(pair.b)) {
      if (auto gap = gap_of(pair, options))
        result.gaps.push_back(std::move(*gap));
      else
        ++result.untimed;
      continue;
    }
    GateRow row;
    row.change = row_change(baseline, candidate, pair);
    medians.push_back(medians_of(baseline, noise, *pair.a));
    const RowSamples &before = baseline.samples_of(*pair.a), &after = candidate.samples_of(*pair.b);
    p.push_back(mann_whitney_p(before.cold_us, after.cold_us));
    p_cycles.push_back(
        row.change.cycle_change ? mann_whitney_p(cold_cycles(*pair.a, before), cold_cycles(*pair.b, after)) : 1);
    result.rows.push_back(std::move(row));
  }
  if (result.rows.empty()) throw std::runtime_error(nothing_in_common(baseline, candidate));
  const auto corrected = holm_adjusted(p), corrected_cycles = holm_adjusted(p_cycles);
  take_process_noise(result, medians);
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    GateRow& row = result.rows[i];
    row.p = corrected[i];
    row.p_cycles = corrected_cycles[i];
    const double of_runs = run_noise(medians[i]);
    // An offset in time is the same fraction in cycles.
    const double of_processes = result.process_us / std::min(row.change.a_us, row.change.b_us) + result.process_share;
    for (double* total : {&row.change.noise, &row.change.cycle_noise})
      *total = std::max({*total, of_runs, of_processes});
    judge(row);
  }
  std::stable_sort(result.rows.begin(), result.rows.end(), [](const GateRow& a, const GateRow& b) {
    return a.verdict != b.verdict ? a.verdict < b.verdict : a.change.change > b.change.change;
  });
  std::stable_sort(result.gaps.begin(), result.gaps.end(),
                   [](const GateGap& a, const GateGap& b) { return a.weight < b.weight; });
  result.totals = total_changes(baseline, candidate, options.pairs);
  return result;
}

}  // namespace noisefloor
