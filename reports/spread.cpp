#include "reports/spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

#include "reports/embedded.h"
#include "reports/run/json_file.h"

namespace noisefloor {
namespace {

using SpreadJson = nlohmann::ordered_json;

constexpr std::array kEdges{0.0, 3.0, 6.0, 10.0, 20.0, 50.0, 200.0, 1000.0};
// Of fewer the 99th percentile is a guess; what is assumed then holds.
constexpr std::size_t kFewestPairs = 30;

double edge_of(double us) {
  return *std::prev(std::upper_bound(kEdges.begin(), kEdges.end(), us));
}

// Where nothing was measured: above what was seen on an H200, whose short launches differ by an offset in cold times,
// and on a virtual machine whose neighbours share its caches, which warm times depend on (docs/log/measuring).
double assumed(bool of_host, Phase phase, double us) {
  if (of_host) return (phase == Phase::cold ? 0.2 : 0.4) + 2.5 / us;
  return phase == Phase::cold ? std::max(0.015, 0.8 / us) : 0.015;
}

double class_spread(const Spread& spread, Phase phase, double us) {
  const auto found = std::ranges::find_if(
      spread.classes, [&](const auto& one) { return one.phase == phase && one.from_us == edge_of(us); });
  return found == spread.classes.end() ? assumed(spread.of_host, phase, us) : found->spread();
}

void require_runs_of_one_build(std::span<const RunFiles* const> runs) {
  if (runs.size() < 2) throw std::runtime_error("the spread between processes needs two runs of one build or more");
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const RunFiles &first = *runs.front(), &run = *runs[i];
    if (run.environment.device != first.environment.device || run.environment.commit != first.environment.commit)
      throw std::runtime_error(
          fmt::format("{} is of {} at commit {}, {} of {} at {}: noise is between runs of one build",
                      run.folder.string(), run.environment.device, run.environment.commit, first.folder.string(),
                      first.environment.device, first.environment.commit));
    for (std::size_t other = 0; other < i; ++other) {
      const bool differs = std::ranges::any_of(run.samples, [&](const auto& taken) {
        const auto there = runs[other]->samples.find(taken.first);
        return there == runs[other]->samples.end() || there->second.cold_us != taken.second.cold_us;
      });
      if (!differs)
        throw std::runtime_error(fmt::format("{}: holds the samples of {}; give other runs of that build",
                                             run.folder.string(), runs[other]->folder.string()));
    }
  }
}

}  // namespace

std::span<const double> class_edges() {
  return kEdges;
}

std::string sweep_name(const RunFiles& run) {
  return fmt::format("{} {}", run.environment.commit, run.environment.time_utc);
}

bool of_host(const RunFiles& run) {
  return std::ranges::any_of(run.rows, [](const SweepRow& row) { return row.kind == "host" || row.load.has_value(); });
}

double agreed_change(const PhaseChange& change) {
  const auto size = [](double relative) { return std::max(1 + relative, 1 / (1 + relative)) - 1; };
  if (!change.cycle_change) return size(change.change);
  if (change.change * *change.cycle_change <= 0) return 0;
  return std::min(size(change.change), size(*change.cycle_change));
}

double Spread::Class::spread() const {
  constexpr double kOfNormal = 2.576;
  return std::max(p99, kOfNormal * rms);
}

bool Spread::measured(Phase phase, double us) const {
  return std::ranges::any_of(classes,
                             [&](const Class& one) { return one.phase == phase && one.from_us == edge_of(us); });
}

double Spread::threshold(const CaseId& id, Phase phase, double us) const {
  double spread = class_spread(*this, phase, us);
  for (const Row& row : rows)
    if (row.phase == phase && row.id == id) spread = std::max(spread, row.largest);
  return 2 * spread;
}

Spread measure_spread(std::span<const RunFiles* const> runs) {
  require_runs_of_one_build(runs);
  Spread spread;
  spread.device = runs.front()->environment.device;
  spread.of_host = of_host(*runs.front());
  struct Seen {
    double us, largest;
  };
  std::map<std::pair<Phase, double>, std::vector<double>> by_class;
  std::map<std::pair<Phase, CaseId>, Seen> by_row;
  const auto take = [&](const CaseId& id, Phase phase, const PhaseChange& change) {
    const double us = std::min(change.a_us, change.b_us), size = agreed_change(change);
    by_class[{phase, edge_of(us)}].push_back(size);
    Seen& seen = by_row.try_emplace({phase, id}, Seen{us, 0}).first->second;
    seen.largest = std::max(seen.largest, size);
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    spread.sweeps.push_back(sweep_name(*runs[i]));
    for (std::size_t j = i + 1; j < runs.size(); ++j)
      for (const RowPair& pair : pair_rows(*runs[i], *runs[j], {})) {
        if (pair.a == nullptr || pair.b == nullptr || pair.a->status != Outcome::ok || pair.b->status != Outcome::ok)
          continue;
        const RowChange change = row_change(*runs[i], *runs[j], pair);
        take(*pair.a, Phase::cold, change.cold);
        if (change.warm) take(*pair.a, Phase::warm, *change.warm);
      }
  }
  for (auto& [of, sizes] : by_class) {
    if (sizes.size() < kFewestPairs) continue;
    std::ranges::sort(sizes);
    double squares = 0;
    for (const double size : sizes) squares += size * size;
    const auto count = static_cast<double>(sizes.size());
    const auto rank = static_cast<std::size_t>(std::ceil(0.99 * count));
    spread.classes.push_back({of.first, of.second, sizes.size(), std::sqrt(squares / count), sizes[rank - 1]});
  }
  for (const auto& [of, seen] : by_row)
    if (seen.largest > 2 * class_spread(spread, of.first, seen.us))
      spread.rows.push_back({of.second, of.first, seen.largest});
  return spread;
}

std::string to_json(const Spread& spread) {
  SpreadJson classes = SpreadJson::array(), rows = SpreadJson::array();
  for (const Spread::Class& one : spread.classes)
    classes.push_back({{"phase", to_string(one.phase)},
                       {"from_us", one.from_us},
                       {"pairs", one.pairs},
                       {"rms", one.rms},
                       {"p99", one.p99}});
  for (const Spread::Row& row : spread.rows)
    rows.push_back({{"case", row.id.name()}, {"phase", to_string(row.phase)}, {"largest", row.largest}});
  const SpreadJson all = {{"device", spread.device}, {"sweeps", spread.sweeps}, {"classes", classes}, {"rows", rows}};
  return all.dump(1) + "\n";
}

namespace {

Spread parsed_spread(const SpreadJson& json, const std::string& where) {
  try {
    const auto phase = [](const SpreadJson& entry) {
      const std::string name = entry.at("phase");
      if (name != "warm" && name != "cold") throw std::runtime_error(fmt::format("'{}' is not a phase", name));
      return name == "warm" ? Phase::warm : Phase::cold;
    };
    const auto number = [](const SpreadJson& entry, const char* name) {
      const double value = entry.at(name);
      if (!(value >= 0 && std::isfinite(value))) throw std::runtime_error(fmt::format("'{}' is below 0", name));
      return value;
    };
    Spread spread;
    spread.device = json.at("device");
    spread.sweeps = json.at("sweeps").get<std::vector<std::string>>();
    for (const SpreadJson& one : json.at("classes"))
      spread.classes.push_back(
          {phase(one), number(one, "from_us"), one.at("pairs"), number(one, "rms"), number(one, "p99")});
    for (const SpreadJson& row : json.at("rows"))
      spread.rows.push_back({CaseId::parse(row.at("case").get<std::string>()), phase(row), number(row, "largest")});
    return spread;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: is not what gate --spread writes: {}", where, error.what()));
  }
}

}  // namespace

Spread read_spread(const std::filesystem::path& file) {
  return parsed_spread(read_json_object(file), file.string());
}

std::optional<Spread> recorded_spread(const std::string& device) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.name == kSpreadFile)
      if (Spread spread = parsed_spread(SpreadJson::parse(file.text), kSpreadFile); spread.device == device)
        return spread;
  return std::nullopt;
}

std::string spread_text(const Spread& spread) {
  std::string text = fmt::format("{}\n{:<6}{:>9}{:>9}{:>9}{:>9}{:>16}\n", spread.device, "phase", "from us", "pairs",
                                 "rms %", "p99 %", "a change is > %");
  for (const Spread::Class& one : spread.classes)
    text += fmt::format("{:<6}{:>9g}{:>9}{:>9.2f}{:>9.2f}{:>16.2f}\n", to_string(one.phase), one.from_us, one.pairs,
                        100 * one.rms, 100 * one.p99, 200 * one.spread());
  for (const Spread::Row& row : spread.rows)
    text +=
        fmt::format("{} by itself: {} differed by {:.1f} %\n", to_string(row.phase), row.id.name(), 100 * row.largest);
  return text;
}

}  // namespace noisefloor
