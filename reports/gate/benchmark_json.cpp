// The times of the gate's candidate for pages that show trends: Bencher's metric format, and the custom benchmarks of
// github-action-benchmark.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/gate/gate.h"

namespace noisefloor {
namespace {

using BenchmarkJson = nlohmann::ordered_json;

// Calls take(row, phase) for each time, in the order of names: what is worst changes from run to run.
template <class Take>
void for_each_time(const GateResult& result, const Take& take) {
  std::vector<const GateRow*> rows;
  for (const auto* some : {&result.rows, &result.kept})
    for (const GateRow& row : *some) rows.push_back(&row);
  std::ranges::sort(rows, {}, [](const GateRow* row) { return row->change.rows.b->name(); });
  for (const GateRow* row : rows)
    for (const Phase phase : {Phase::cold, Phase::warm})
      if (phase == Phase::cold || row->change.warm) take(*row, phase);
}

std::string text_of_json(const BenchmarkJson& json) {
  return json.dump(2, ' ', false, BenchmarkJson::error_handler_t::replace) + "\n";
}

}  // namespace

std::string bencher_json(const GateResult& result) {
  BenchmarkJson all = BenchmarkJson::object();
  for_each_time(result, [&](const GateRow& row, Phase phase) {
    const PhaseChange& change = row.change_of(phase);
    const double ns = 1e3 * change.b_us, noise = row.of(phase).noise;
    all[row.change.rows.b->name()][phase == Phase::cold ? "latency" : "warm-latency"] = {
        {"value", ns}, {"lower_value", ns * (1 - noise)}, {"upper_value", ns * (1 + noise)}};
  });
  return text_of_json(all);
}

std::string benchmark_action_json(const GateResult& result) {
  BenchmarkJson all = BenchmarkJson::array();
  for_each_time(result, [&](const GateRow& row, Phase phase) {
    const PhaseChange& change = row.change_of(phase);
    all.push_back({{"name", fmt::format("{} ({})", row.change.rows.b->name(), to_string(phase))},
                   {"unit", "us"},
                   {"value", change.b_us},
                   {"range", fmt::format("± {:.1f} %", 100 * row.of(phase).noise)},
                   {"extra", fmt::format("{}: {:.4g} us before ({:+.1f} %)\n{}, commit {}", to_string(row.verdict),
                                         change.a_us, 100 * change.change, result.device, row.change.rows.b->commit)}});
  });
  return text_of_json(all);
}

}  // namespace noisefloor
