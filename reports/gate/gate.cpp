#include "reports/gate/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "reports/run/files.h"
#include "reports/run/network_problems.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

// The one device of a run's rows. A gate is about one.
std::string device_of(const RunFiles& run) {
  if (run.rows.empty()) throw failure("{}: the run has no rows", run.folder.string());
  std::set<std::string> devices;
  for (const SweepRow& row : run.rows) devices.insert(row.device);
  if (devices.size() > 1)
    throw failure("{}: holds rows of more than one device: {}", run.folder.string(), fmt::join(devices, ", "));
  return *devices.begin();
}

bool is_ok(const SweepRow* row) {
  return row != nullptr && row->status == Outcome::ok;
}
bool is_broken(const SweepRow* row) {
  return row != nullptr && is_wrong(row->status);
}

std::string state_of(const SweepRow* row) {
  if (row == nullptr) return "missing";
  return to_string(row->status) + (row->reason.empty() || is_ok(row) ? "" : " (" + row->reason + ")");
}

std::optional<GateGap> gap_of(const RowPair& pair, const GateOptions& options) {
  using Weight = GateGap::Weight;
  const auto gap = [&](Weight weight) {
    return GateGap{pair.named(), weight,
                   fmt::format("{} in the baseline, {} in the candidate", state_of(pair.a), state_of(pair.b)),
                   is_ok(pair.a)};
  };
  if (is_broken(pair.b)) return gap(is_broken(pair.a) ? Weight::noted : Weight::fails);
  if (is_ok(pair.a)) return gap(Weight::blocks);
  if (is_ok(pair.b)) return gap(options.new_rows ? Weight::noted : Weight::blocks);
  return std::nullopt;
}

// What a row has in the baseline, and not in the candidate: not judged, and so not passed over.
GateGap lost(const CaseId& id, const char* what) {
  return {id, GateGap::Weight::blocks, fmt::format("{} in the baseline, none in the candidate", what), true};
}

// Why nothing at all can be compared.
std::string nothing_in_common(const RunFiles& a, const RunFiles& b) {
  const auto said = [](const RunFiles& run) {
    std::set<std::string> dtypes, ops;
    for (const SweepRow& row : run.rows) {
      dtypes.insert(row.dtype);
      ops.insert(row.op);
    }
    return fmt::format("{} has {} in {}", run.folder.string(), fmt::join(ops, ", "), fmt::join(dtypes, ", "));
  };
  return fmt::format("no row is ok in both runs: {}; {}", said(a), said(b));
}

// The worst verdict of its phases; of those that have it, the reasons.
void decide(GateRow& row) {
  std::vector<Phase> phases{Phase::cold};
  if (row.warm) phases.insert(phases.begin(), Phase::warm);
  row.verdict =
      row.of(*std::ranges::min_element(phases, {}, [&](Phase phase) { return row.of(phase).verdict; })).verdict;
  if (row.verdict == GateVerdict::pass) return;
  for (const Phase phase : phases)
    if (row.of(phase).verdict == row.verdict) row.by.push_back(phase);
  for (const Phase phase : row.by)
    if (const std::string& reason = row.of(phase).reason; !reason.empty())
      row.reason += fmt::format("{}{}{}", row.reason.empty() ? "" : "; ",
                                row.by.size() > 1 ? fmt::format("{}: ", to_string(phase)) : "", reason);
}

// Whether the candidate's sweep kept the baseline's own row (--reuse), so that there is nothing to compare. A copy of
// the baseline keeps nothing.
bool is_kept(const RunFiles& a, const RunFiles& b, const RowPair& pair) {
  if (!b.environment.texts.contains(kReusedFrom) || a.environment.time_utc == b.environment.time_utc) return false;
  return !pair.a->signature.empty() && pair.a->signature == pair.b->signature &&
         pair.a->measured_utc == pair.b->measured_utc && a.samples_of(*pair.a).cold_us == b.samples_of(*pair.b).cold_us;
}

// Judges pairs of the rows of two runs.
class RowJudge {
 public:
  RowJudge(const RunFiles& a, const GateNoise* measured)
      : a_(a), measured_(measured), assumed_(is_of_host(a) ? kMostNoise : kAssumedNoise) {}

  GateRow row(const RunFiles& b, const RowPair& pair) const {
    GateRow row;
    row.change = row_change(a_, b, pair);
    row.cold = phase(b, pair, Phase::cold, row.change.cold);
    if (row.change.warm) row.warm = phase(b, pair, Phase::warm, *row.change.warm);
    decide(row);
    const std::string& code = pair.b->signature;
    if (row.verdict == GateVerdict::regressed && !code.empty() && code == pair.a->signature)
      row.reason += fmt::format("{}both run the same code (signature): the machine, or how it was timed, differs",
                                row.reason.empty() ? "" : "; ");
    return row;
  }

 private:
  PhaseVerdict phase(const RunFiles& b, const RowPair& pair, Phase phase, const PhaseChange& change) const {
    const auto between = measured_ == nullptr ? std::nullopt : measured_->of(*pair.a, phase);
    const double own =
        std::max(batch_noise(*phase_samples(a_, *pair.a, phase)), batch_noise(*phase_samples(b, *pair.b, phase)));
    PhaseVerdict verdict = judge(change, phase, std::max(own, between.value_or(assumed_)));
    if (verdict.verdict == GateVerdict::ambiguous && !between && own < assumed_)
      verdict.reason += ", which is assumed: gate calibrate measures it";
    return verdict;
  }

  const RunFiles& a_;
  const GateNoise* measured_;
  double assumed_;
};

// The rule on a suspect's second measurement.
void confirm(GateRow& row, const RowJudge& judge, const RunFiles& again) {
  const auto found = std::ranges::find_if(
      again.rows, [&](const SweepRow& one) { return one.case_id() == row.change.rows.b->case_id(); });
  if (found == again.rows.end() || !is_ok(&*found)) return;
  const double before = row.slowdown();
  row = judge.row(again, {row.change.rows.a, &*found});
  row.reason =
      fmt::format("measured again, at first {:+.1f} %{}{}", 100 * before, row.reason.empty() ? "" : "; ", row.reason);
}

void add_conditions(GateResult& result, const RunFiles& baseline, const RunFiles& candidate, const GateOptions& options,
                    std::size_t cold_alone) {
  const GateNoise* const noise = options.noise;
  std::vector<std::string>& said = result.conditions;
  if (!result.kept.empty())
    said.push_back(
        fmt::format("{} of {} rows run the same code as in the baseline, and the sweep kept the baseline's own "
                    "(--reuse): they are not compared",
                    result.kept.size(), result.kept.size() + result.rows.size()));
  else if (baseline.folder == candidate.folder || same_samples(baseline, candidate))
    said.emplace_back("the candidate has the baseline's samples: it is that run, or a copy, and this says nothing");
  said.push_back(noise == nullptr ? std::string("noise between runs: assumed; gate calibrate measures it")
                                  : fmt::format("noise between runs: measured from {} of them", noise->runs.size()));
  if (cold_alone > 0)
    said.push_back(
        fmt::format("judged by cold times alone: {} rows without warm serial times in the baseline", cold_alone));
  if (result.launches.known_to_one > 0)
    said.push_back(fmt::format("launches not compared: {} rows whose kernels one of the runs does not know",
                               result.launches.known_to_one));
  for (std::string& difference : environment_differences(baseline, candidate)) said.push_back(std::move(difference));
  if (options.again == nullptr) return;
  for (const std::string& difference : environment_differences(candidate, *options.again))
    said.push_back(fmt::format("measured again, {}", difference));
}

void require_comparable(const RunFiles& baseline, const RunFiles& candidate, const GateNoise* noise) {
  const std::string before = device_of(baseline), after = device_of(candidate);
  if (before != after)
    throw failure(
        "{} is of '{}', {} of '{}': different devices cannot be held against each other; noisefloor compare shows both",
        baseline.folder.string(), before, candidate.folder.string(), after);
  if (noise == nullptr) return;
  if (noise->device != before)
    throw failure("the noise was measured on '{}', the runs are of '{}': gate calibrate anew", noise->device, before);
  if (!candidate.environment.time_utc.empty() &&
      std::ranges::find(noise->runs, name_of(candidate)) != noise->runs.end())
    throw failure(
        "{} is one of the runs that the noise was measured from: it would always pass; gate calibrate without it",
        candidate.folder.string());
}

// What decides a suspect is of the candidate's build, and neither of the two runs again: the baseline would clear all.
void require_second_run(const RunFiles& baseline, const RunFiles& candidate, const RunFiles& again) {
  const RunEnvironment &first = candidate.environment, &second = again.environment;
  if (first.device != second.device || !same_code(first.commit, second.commit))
    throw failure(
        "{} is of '{}' at commit {}, the candidate of '{}' at {}: suspects are measured again by the candidate's build",
        again.folder.string(), second.device, second.commit, first.device, first.commit);
  for (const RunFiles* run : {&baseline, &candidate})
    if (same_samples(*run, again))
      throw failure("{}: holds the samples of {}, which decide nothing: measure into another folder",
                    again.folder.string(), run->folder.string());
}

// Cases that a sweep into the candidate's folder chose and did not come to, where the baseline does not name them.
void add_interrupted(GateResult& result, const RunFiles& baseline, const RunFiles& candidate,
                     const GateOptions& options) {
  const auto left = cases_without_row(read_selected_cases(candidate.folder), candidate.rows);
  for (const CaseId& id : cases_without_row(left, baseline.rows))
    if (!options.pairs.filter || options.pairs.filter(id.name()))
      result.gaps.push_back({id, GateGap::Weight::blocks, "chosen for the candidate and not measured: sweep it on"});
}

}  // namespace

const char* to_string(GateVerdict verdict) {
  constexpr const char* kNames[] = {"regressed", "ambiguous", "improved", "pass"};
  return kNames[static_cast<std::size_t>(verdict)];
}

double batch_noise(const PhaseSamples& samples) {
  constexpr std::size_t kFewestBatches = 4;  // of fewer, samples by themselves
  std::vector<double> values = medians_of({samples.us, samples.batches});
  if (values.size() < kFewestBatches) values = samples.us;
  if (samples.slots > 1 && samples.slots < values.size()) {
    std::vector<std::vector<double>> slots(samples.slots);
    for (std::size_t i = 0; i < values.size(); ++i) slots[i % slots.size()].push_back(values[i]);
    values.clear();
    for (std::vector<double>& slot : slots) values.push_back(median(std::move(slot)));
  }
  const Interval interval = median_interval(std::move(values), 3);
  const double middle = median(samples.us);
  return std::max(middle - interval.low, interval.high - middle) / middle;
}

PhaseVerdict judge(const PhaseChange& change, Phase phase, double noise) {
  const double n = std::min(noise, kMostNoise), width = (1 + n) / (1 - n);
  const double timer = phase == Phase::warm ? 0 : std::min(kTimerShare, kTimerUs / std::min(change.a_us, change.b_us));
  const double least = width * (1 + std::max(kSmallChange, timer));
  const double time = 1 + change.change, cycles = change.cycle_change ? 1 + *change.cycle_change : time;
  if (std::min(time, cycles) > least) return {n, GateVerdict::regressed};
  if (std::max(time, cycles) < 1 / least) return {n, GateVerdict::improved};
  if (time * width < 1 + std::max(kLargeChange, timer)) return {n, GateVerdict::pass};
  if (time > least)
    return {n, GateVerdict::ambiguous,
            fmt::format("{:+.1f} % in SM cycles, {:+.1f} % in time", 100 * (cycles - 1), 100 * (time - 1))};
  return {n, GateVerdict::ambiguous, fmt::format("the noise, {:.1f} %, is too large to tell", 100 * n)};
}

double GateRow::slowdown() const {
  if (by.empty()) return std::max(change.cold.change, change.warm ? change.warm->change : change.cold.change);
  double most = change_of(by.front()).change;
  for (const Phase phase : by) most = std::max(most, change_of(phase).change);
  return most;
}

std::size_t GateResult::count(GateVerdict verdict) const {
  return static_cast<std::size_t>(std::ranges::count(rows, verdict, &GateRow::verdict));
}

std::size_t GateResult::count(GateGap::Weight weight) const {
  return static_cast<std::size_t>(std::ranges::count(gaps, weight, &GateGap::weight));
}

std::size_t GateResult::much_slower_ambiguous() const {
  return static_cast<std::size_t>(std::ranges::count_if(rows, &GateRow::blocks));
}

int GateResult::exit_code() const {
  if (count(GateVerdict::regressed) > 0 || count(GateGap::Weight::fails) > 0) return 1;
  if (gates_launches && launches.ours() > 0) return 1;
  return count(GateGap::Weight::blocks) > 0 || much_slower_ambiguous() > 0 ? 2 : 0;
}

GateResult gate(const RunFiles& baseline, const RunFiles& candidate, const GateOptions& options) {
  require_comparable(baseline, candidate, options.noise);
  if (options.again != nullptr) require_second_run(baseline, candidate, *options.again);
  GateResult result;
  result.device = device_of(baseline);
  result.gates_launches = options.launches;
  const RowJudge judge(baseline, options.noise);
  const auto pairs = pair_rows(baseline, candidate, options.pairs);
  std::size_t cold_alone = 0;
  const bool doubted = candidate.environment.texts.contains(kDoubted);
  for (const RowPair& pair : pairs) {
    if (is_ok(pair.a) && is_ok(pair.b) && is_kept(baseline, candidate, pair)) {
      if (doubted)
        result.gaps.push_back({pair.b->case_id(), GateGap::Weight::blocks,
                               "kept of the baseline by a sweep whose checks took another time: sweep --fresh"});
      else
        result.kept.push_back(judge.row(candidate, pair));
    } else if (is_ok(pair.a) && is_ok(pair.b)) {
      GateRow& row = result.rows.emplace_back(judge.row(candidate, pair));
      if (row.is_suspect() && options.again != nullptr) confirm(row, judge, *options.again);
      if (row.warm) continue;
      if (phase_samples(baseline, *pair.a, Phase::warm))
        result.gaps.push_back(lost(*pair.a, "warm times"));
      else
        ++cold_alone;
    } else if (auto gap = gap_of(pair, options)) {
      result.gaps.push_back(std::move(*gap));
    } else {
      ++result.untimed;
    }
  }
  if (result.rows.empty() && result.kept.empty() && !doubted)
    throw std::runtime_error(nothing_in_common(baseline, candidate));
  add_interrupted(result, baseline, candidate, options);
  result.totals = total_changes(baseline, candidate, options.pairs);
  result.launches = launch_changes(baseline, candidate, pairs);
  if (options.launches)
    for (const SweepRow* row : result.launches.lost) result.gaps.push_back(lost(*row, "kernels"));
  if (options.launches && result.launches.compared == 0 && result.launches.lost.empty())
    throw std::runtime_error("--launches: no row whose kernels both runs recorded");
  add_conditions(result, baseline, candidate, options, cold_alone);
  std::ranges::stable_sort(result.rows, [](const GateRow& a, const GateRow& b) {
    return a.verdict != b.verdict ? a.verdict < b.verdict : a.slowdown() > b.slowdown();
  });
  std::ranges::stable_sort(result.gaps, {}, &GateGap::weight);
  return result;
}

}  // namespace noisefloor
