#include "reports/gate/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>

#include "reports/run/json_file.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

using NoiseJson = nlohmann::ordered_json;

constexpr std::size_t kFewestRuns = 3;  // of two nobody can say which is off

void require_runs_of_one_build(std::span<const RunFiles> runs) {
  if (runs.size() < kFewestRuns)
    throw failure("noise takes {} runs of one build or more, not {}", kFewestRuns, runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFiles &first = runs.front(), &run = runs[i];
    if (run.environment.device != first.environment.device ||
        !same_code(run.environment.commit, first.environment.commit))
      throw failure("{} is of {} at commit {}, {} of {} at {}: noise is between runs of one build", run.folder.string(),
                    run.environment.device, run.environment.commit, first.folder.string(), first.environment.device,
                    first.environment.commit);
    for (std::size_t other = 0; other < i; ++other)
      if (same_samples(runs[other], run))
        throw failure("{}: holds the samples of {}; give other runs of that build", run.folder.string(),
                      runs[other].folder.string());
  }
}

struct Medians {
  std::size_t run;
  double us;
  std::optional<double> cycles;
};

// By how much, of the shorter, time and cycles agree that two differ. A difference that the clock explains is none.
double apart(const Medians& a, const Medians& b) {
  const double time = std::log(b.us / a.us), cycles = a.cycles && b.cycles ? std::log(*b.cycles / *a.cycles) : time;
  return time * cycles <= 0 ? 0 : std::expm1(std::min(std::abs(time), std::abs(cycles)));
}

// The one that is furthest from the middle.
std::size_t run_off(const std::vector<Medians>& all) {
  std::vector<double> times;
  for (const Medians& one : all) times.push_back(one.us);
  const double middle = median(times);
  return std::ranges::max_element(all, {}, [&](const Medians& one) { return std::abs(std::log(one.us / middle)); })
      ->run;
}

void require_few_apart(std::span<const RunFiles> runs, const std::map<std::size_t, std::set<std::string>>& apart) {
  constexpr std::size_t kNamed = 5;
  for (const auto& [run, rows] : apart)
    if (10 * rows.size() > runs[run].rows.size())
      throw failure(
          "{}: {} of its {} rows lie more than {:.0f} % apart from the other runs' ({}{}): that is no noise; leave it "
          "out, or sweep again on a quiet machine",
          runs[run].folder.string(), rows.size(), runs[run].rows.size(), 100 * kMostNoise,
          fmt::join(rows | std::views::take(kNamed), ", "), rows.size() > kNamed ? ", ..." : "");
}

}  // namespace

std::optional<double> GateNoise::of(const CaseId& id, Phase phase) const {
  const auto found = rows.find({phase, id});
  return found == rows.end() ? std::nullopt : std::optional(found->second);
}

std::string name_of(const RunFiles& run) {
  return fmt::format("{} {}", run.environment.commit, run.environment.time_utc);
}

bool is_of_host(const RunFiles& run) {
  return std::ranges::any_of(run.rows, [](const SweepRow& row) { return row.kind == "host" || row.load.has_value(); });
}

MeasuredNoise measure_noise(std::span<const RunFiles> runs) {
  require_runs_of_one_build(runs);
  std::map<std::pair<Phase, CaseId>, std::vector<Medians>> medians;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const SweepRow& row : runs[i].rows)
      for (const Phase phase : {Phase::warm, Phase::cold}) {
        if (row.status != Outcome::ok) continue;
        const auto samples = phase_samples(runs[i], row, phase);
        if (!samples) continue;
        Medians one{i, median(samples->us), std::nullopt};
        if (!samples->cycles.empty()) one.cycles = median(samples->cycles);
        medians[{phase, row.case_id()}].push_back(one);
      }
  MeasuredNoise measured{{runs.front().environment.device, {}, {}}, {}};
  for (const RunFiles& run : runs) measured.noise.runs.push_back(name_of(run));
  std::map<std::size_t, std::set<std::string>> off;  // by run
  for (const auto& [of, all] : medians) {
    if (all.size() < kFewestRuns) continue;
    double most = 0;
    for (const Medians& a : all)
      for (const Medians& b : all) most = std::max(most, apart(a, b));
    if (most <= kMostNoise) {
      measured.noise.rows[of] = most;
      continue;
    }
    const std::size_t run = run_off(all);
    off[run].insert(of.second.name());
    measured.left_out.push_back(fmt::format("{} ({}): {:.0f} % apart, by {}", of.second.name(), to_string(of.first),
                                            100 * most, runs[run].folder.string()));
  }
  require_few_apart(runs, off);
  if (measured.noise.rows.empty()) throw failure("no row is ok in {} of the runs", kFewestRuns);
  return measured;
}

std::string to_json(const GateNoise& noise) {
  NoiseJson rows = NoiseJson::array();
  for (const auto& [of, value] : noise.rows)
    rows.push_back({{"case", of.second.name()}, {"phase", to_string(of.first)}, {"noise", value}});
  return NoiseJson{{"device", noise.device}, {"runs", noise.runs}, {"rows", rows}}.dump(1) + "\n";
}

GateNoise read_noise(const fs::path& file) {
  const auto json = read_json_object(file);
  if (json.contains("classes"))
    throw failure(
        "{}: was written by gate --spread of an older version: measure it anew by gate calibrate, or remove it",
        file.string());
  try {
    GateNoise noise{json.at("device"), json.at("runs").get<std::vector<std::string>>(), {}};
    for (const auto& entry : json.at("rows")) {
      const std::string phase = entry.at("phase");
      const double value = entry.at("noise");
      if (phase != to_string(Phase::warm) && phase != to_string(Phase::cold))
        throw failure("'{}' is not a phase", phase);
      if (!(value >= 0 && value <= kMostNoise)) throw failure("'noise' is {}, not within 0 and {}", value, kMostNoise);
      noise.rows[{phase == to_string(Phase::warm) ? Phase::warm : Phase::cold,
                  CaseId::parse(entry.at("case").get<std::string>())}] = value;
    }
    return noise;
  } catch (const std::exception& error) {
    throw failure("{}: is not what gate calibrate writes: {}", file.string(), error.what());
  }
}

}  // namespace noisefloor
