#include "reports/gate/spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <ranges>
#include <stdexcept>

#include "reports/run/embedded.h"
#include "reports/run/json_file.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

using SpreadJson = nlohmann::ordered_json;

constexpr std::array kEdges{0.0, 3.0, 6.0, 10.0, 20.0, 50.0, 200.0, 1000.0};
// Of fewer the 99th percentile is a guess; what is assumed then holds.
constexpr std::size_t kFewestPairs = 30;
constexpr double kOfNormal = 2.576;  // root mean squares, which one in a hundred exceeds
// Of fewer a row's spread is a guess, too.
constexpr std::size_t kFewestRuns = 4;

double edge_of(double us) {
  return *std::prev(std::upper_bound(kEdges.begin(), kEdges.end(), us));
}

// Where nothing was measured: above what was seen on an H200, whose short launches differ by an offset in cold times,
// and on a virtual machine whose neighbours share its caches, which warm times depend on (docs/experiments/measuring).
double assumed(bool of_host, Phase phase, double us) {
  if (of_host) return (phase == Phase::cold ? 0.2 : 0.4) + 2.5 / us;
  return phase == Phase::cold ? std::max(0.015, 0.8 / us) : 0.015;
}

const Spread::Class* class_of(const Spread& spread, Phase phase, double us) {
  const auto found = std::ranges::find_if(
      spread.classes, [&](const auto& one) { return one.phase == phase && one.from_us == edge_of(us); });
  return found == spread.classes.end() ? nullptr : &*found;
}

double class_spread(const Spread& spread, Phase phase, double us) {
  const Spread::Class* const found = class_of(spread, phase, us);
  return found == nullptr ? assumed(spread.of_host, phase, us) : found->spread();
}

double root_mean_square(const std::vector<double>& values) {
  const double squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Two root mean squares, 19 pairs in 20. A few runs say it badly: a typical row of its class counts as two runs more.
double row_spread(const Spread::Row& row, double typical) {
  constexpr double kOfClass = 2;
  const auto freedom = static_cast<double>(row.runs - 1);
  const double square = (freedom * row.rms * row.rms + kOfClass * typical * typical) / (freedom + kOfClass);
  return 2 * std::sqrt(square);
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
  }
}

// A copy may have a few rows that were measured again, and rows of a coarse clock are alike by chance.
bool most_rows_have_the_same_samples(const RunFiles& a, const RunFiles& b) {
  std::size_t both = 0, alike = 0;
  for (const auto& [id, of_b] : b.samples)
    if (const auto of_a = a.samples.find(id); of_a != a.samples.end() && of_b.cold_us.size() > 1) {
      ++both;
      alike += of_a->second.cold_us == of_b.cold_us;
    }
  return 2 * alike > both;
}

void require_processes_of_their_own(std::span<const RunFiles* const> runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFiles& run = *runs[i];
    for (const SweepRow& row : run.rows)
      if (row.processes.value_or(1) > 1)
        throw std::runtime_error(fmt::format("{}: {} is of {} processes: a spread is of runs of one; sweep again",
                                             run.folder.string(), row.name(), *row.processes));
    for (std::size_t other = 0; other < i; ++other)
      if (most_rows_have_the_same_samples(*runs[other], run))
        throw std::runtime_error(fmt::format("{}: holds the samples of {}; give other runs of that build",
                                             run.folder.string(), runs[other]->folder.string()));
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
  double agreed = std::numeric_limits<double>::infinity();
  for (const double one : {change.change, change.mean_change, change.cycle_change.value_or(change.change)}) {
    if (one * change.change <= 0) return 0;
    agreed = std::min(agreed, std::max(1 + one, 1 / (1 + one)) - 1);
  }
  return agreed;
}

double Spread::Class::spread() const {
  return std::max(p99, kOfNormal * rms);
}

bool Spread::measured(Phase phase, double us) const {
  return class_of(*this, phase, us) != nullptr;
}

double Spread::threshold(const CaseId& id, Phase phase, double us) const {
  const double of_class = class_spread(*this, phase, us);
  const auto row = rows.find({phase, id});
  if (row == rows.end()) return 2 * of_class;
  const Class* const measured = class_of(*this, phase, us);
  const double own = row_spread(row->second, measured == nullptr ? of_class / kOfNormal : measured->typical);
  // Cold times stay for many processes, and leave for one: a row's own runs do not show it, its class's do.
  const bool alone = phase == Phase::warm && !of_host && row->second.runs >= kFewestRuns;
  return 2 * (alone ? own : std::max(own, of_class));
}

Spread measure_spread(std::span<const RunFiles* const> runs) {
  require_runs_of_one_build(runs);
  Spread spread;
  require_processes_of_their_own(runs);
  spread.device = runs.front()->environment.device;
  spread.of_host = of_host(*runs.front());
  struct Seen {
    double us;
    std::vector<double> sizes;
  };
  std::map<std::pair<Phase, double>, std::vector<double>> by_class;
  std::map<std::pair<Phase, CaseId>, Seen> by_row;
  const auto take = [&](const CaseId& id, Phase phase, const PhaseChange& change) {
    const double us = std::min(change.a_us, change.b_us), size = agreed_change(change);
    by_class[{phase, edge_of(us)}].push_back(size);
    by_row.try_emplace({phase, id}, Seen{us, {}}).first->second.sizes.push_back(size);
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
    const auto rank = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(sizes.size())));
    std::vector<double> of_rows;
    for (const auto& [row, seen] : by_row)
      if (row.first == of.first && edge_of(seen.us) == of.second) of_rows.push_back(root_mean_square(seen.sizes));
    const double rms = root_mean_square(sizes), typical = of_rows.empty() ? rms : median(of_rows);
    spread.classes.push_back({of.first, of.second, sizes.size(), rms, sizes[rank - 1], typical});
  }
  for (const auto& [of, seen] : by_row) {
    const bool stands_out = std::ranges::max(seen.sizes) > 2 * class_spread(spread, of.first, seen.us);
    if (!stands_out && (of.first == Phase::cold || spread.of_host)) continue;
    // k runs make k (k - 1) / 2 pairs.
    const double count = (1 + std::sqrt(1 + 8 * static_cast<double>(seen.sizes.size()))) / 2;
    spread.rows[of] = {static_cast<std::size_t>(count + 0.5), root_mean_square(seen.sizes)};
  }
  return spread;
}

std::string to_json(const Spread& spread) {
  SpreadJson classes = SpreadJson::array(), rows = SpreadJson::array();
  for (const Spread::Class& one : spread.classes)
    classes.push_back({{"phase", to_string(one.phase)},
                       {"from_us", one.from_us},
                       {"pairs", one.pairs},
                       {"rms", one.rms},
                       {"p99", one.p99},
                       {"typical", one.typical}});
  for (const auto& [of, row] : spread.rows)
    rows.push_back({{"case", of.second.name()}, {"phase", to_string(of.first)}, {"runs", row.runs}, {"rms", row.rms}});
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
    if (const long processes = json.value("processes", 1L); processes != 1)  // of an older version: they differ less
      throw std::runtime_error(fmt::format("its rows are of {} processes each; measure it again", processes));
    spread.sweeps = json.at("sweeps").get<std::vector<std::string>>();
    for (const SpreadJson& one : json.at("classes"))  // an older version has no typical row
      spread.classes.push_back({phase(one), number(one, "from_us"), one.at("pairs"), number(one, "rms"),
                                number(one, "p99"), number(one, one.contains("typical") ? "typical" : "rms")});
    for (const SpreadJson& entry : json.at("rows")) {
      // Of an older version: the largest difference, of an unknown number of runs.
      const bool old = !entry.contains("rms");
      const Spread::Row row{old ? 2 : entry.at("runs").get<std::size_t>(), number(entry, old ? "largest" : "rms")};
      if (row.runs < 2) throw std::runtime_error("'runs' is below 2");
      spread.rows[{phase(entry), CaseId::parse(entry.at("case").get<std::string>())}] = row;
    }
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
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& [of, row] : spread.rows)
    rows.emplace_back(-row.rms, fmt::format("{} {}: {:.2f} % rms of {} runs\n", to_string(of.first), of.second.name(),
                                            100 * row.rms, row.runs));
  std::ranges::sort(rows);
  constexpr std::size_t kShown = 10;
  if (!rows.empty()) text += fmt::format("{} phases of rows by themselves; the widest:\n", rows.size());
  for (const auto& [ignored, line] : rows | std::views::take(kShown)) text += line;
  return text;
}

}  // namespace noisefloor
