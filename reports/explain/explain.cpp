#include "reports/explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "reports/run/columns.h"
#include "reports/totals/text_tables.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

using Json = nlohmann::ordered_json;

// What it takes to know a figure.
enum class Source { ceilings, counters, traffic, kernels, grid, launch, run, optional };

struct EvidenceFigure {
  const char* name;
  Source source;
  const char *unit = "", *description = "";  // empty: a column's
};
constexpr EvidenceFigure kEvidence[] = {
    {"pct_of_roof", Source::ceilings},
    {"memory_pct", Source::ceilings, "%", "Compulsory bytes over the cold time, in percent of the ceiling dram_copy."},
    {"compute_pct", Source::ceilings, "%", "FLOPs over the cold time, in percent of the ceiling that `bound` names."},
    {"balance", Source::ceilings, "x",
     "Intensity over the one at which memory and arithmetic take equally long. Below 1, memory bounds the problem."},
    {"dram_pct", Source::traffic, "%", "Bytes that DRAM really moves over the cold time, in percent of dram_copy."},
    {"traffic", Source::traffic, "x", "Bytes that DRAM really moves over the compulsory ones."},
    {"l2_pct", Source::counters, "%", "Bytes through L2 over the cold time, in percent of the ceiling l2."},
    {"tensor_pipe_pct", Source::counters},
    {"tensor_share_pct", Source::optional, "%",
     "compute_pct over tensor_pipe_pct. It is low if few SMs have work, or if work is thrown away."},
    {"occupancy_pct", Source::counters},
    {"occupancy_used_pct", Source::optional, "%",
     "Active warps, in percent of those that fit, of a launch of one kernel."},
    {"occupancy_limit_pct", Source::kernels},
    {"occupancy_limiter", Source::grid},
    {"registers", Source::kernels},
    {"smem_bytes", Source::kernels},
    {"spill_bytes", Source::kernels},
    {"blocks", Source::grid},
    {"threads", Source::grid},
    {"waves", Source::grid},
    {"wave_fill_pct", Source::grid, "%",
     "waves over the next whole number: how full the SMs are on average if all blocks are equal."},
    {"kernels", Source::grid, "", "Kernels of one launch."},
    {"launch_us", Source::launch, "µs",
     "The cost of a launch: the cold time of the run's shortest other launch whose work takes at most 1 us by its "
     "roof, if that is at most 20 us."},
    {"launch_pct", Source::launch, "%", "launch_us over the cold time."},
    {"warm_pct", Source::optional, "%", "Warm time over the cold time."},
    {"competitor_ratio", Source::run, "x",
     "The cold time over that of the fastest other row of the problem; of their paired comparison if they had one."},
    {"clock_pct", Source::optional, "%",
     "SM clock of the cold launches, in percent of the clock at which the ceiling was measured."},
    {"load", Source::optional},
    {"throttle", Source::optional},
};

// Unit and description: the figure's own, else those of the column of that name.
std::pair<const char*, const char*> about(std::string_view name) {
  if (const SweepColumn* const column = sweep_column(name)) return {column->unit, column->description};
  const auto* const figure = std::ranges::find(kEvidence, name, &EvidenceFigure::name);
  return {figure->unit, figure->description};
}

// Why figures of a source are not known, and how to get them.
std::pair<std::string, const char*> why_unknown(Source source, const SweepRow& row, const CeilingTable& ceilings) {
  constexpr const char* kSweep = "noisefloor sweep --ops {op}{options} --out DIR, then explain with --run DIR";
  if (source == Source::ceilings)
    return ceilings.rows.empty() ? std::pair("the run has no ceilings", kSweep)
                                 : std::pair("no row of this op and dtype names its ceiling", kSweep);
  if (source == Source::run) return {"the run has no other row to compare with", kSweep};
  if (source == Source::launch)
    return {"the run has no other launch with next to nothing to do",
            "noisefloor sweep --networks NAME{options} --out DIR, without --ops, then explain with --run DIR"};
  if (of_worker(row)) return {"another program launches it", "nsys or ncu on that program"};
  if (row.op == kWholeNetwork) return {"it is many launches", "noisefloor forward, sample or train with --breakdown"};
  if (source == Source::kernels || source == Source::grid)
    return {"the driver did not say, or the run is older than these columns", kSweep};
  if (row.counter_status == "ok_below_l2")
    return {"its bytes fit into L2, so that what DRAM moves is what L2 chose to keep", "a larger problem of the op"};
  if (row.counter_status == "off")
    return {"counters were off",
            "noisefloor sweep --ops {op}{options} --counters require --out DIR, then explain with --run DIR"};
  return {fmt::format("counters: {} (noisefloor devices says what to do)",
                      row.counter_status.empty() ? "not taken" : row.counter_status),
          "{ncu}"};
}

struct Competitor {
  const SweepRow* row;
  double times;  // this row's cold time over the competitor's: above 1 the competitor is faster
  bool paired;   // by a paired comparison
};

// Fastest first.
std::vector<Competitor> competitors_of(const RunFiles& run, const SweepRow& row) {
  std::vector<Competitor> competitors;
  if (!is_timed(row)) return competitors;
  for (const SweepRow& other : run.rows) {
    if (&other == &row || other.problem_id() != row.problem_id() || other.device != row.device || !is_timed(other))
      continue;
    double times = *row.time_cold_us / *other.time_cold_us;
    const bool paired = row.paired_with == other.variant && row.speedup_cold,
               its_pair = other.paired_with == row.variant && other.speedup_cold;
    if (paired || its_pair) times = paired ? 1 / *row.speedup_cold : *other.speedup_cold;
    competitors.push_back({&other, times, paired || its_pair});
  }
  std::ranges::stable_sort(competitors, std::greater(), &Competitor::times);
  return competitors;
}

// With others of the same reason.
void add_unknown(Json& all, const char* name, const std::string& why, const std::string& how) {
  for (Json& unknown : all)
    if (unknown["why"] == why && unknown["how"] == how) return unknown["figures"].push_back(name);
  all.push_back({{"figures", Json::array({name})}, {"why", why}, {"how", how}});
}

}  // namespace

nlohmann::ordered_json explain(const RunFiles& run, const SweepRow& row, const CeilingTable& ceilings) {
  Json findings = Json::array(), evidence = Json::object(), competitors = Json::array(), unknown = Json::array();
  RowFigures figures(run, row, ceilings);
  for (const auto& [other, times, paired] : competitors_of(run, row)) {
    if (competitors.empty()) figures.set_competitor(*other, times);
    competitors.push_back({{"variant", other->variant},
                           {"kind", other->kind},
                           {"time_cold_us", *other->time_cold_us},
                           {"times_as_fast", times},
                           {"paired", paired}});
  }
  for (const ExplainRule& rule : explain_rules()) {
    figures.set("findings", static_cast<double>(findings.size()));
    if (figures.holds(rule.condition))
      findings.push_back({{"rule", rule.name},
                          {"sentence", figures.filled(rule.sentence)},
                          {"experiment", figures.filled(rule.experiment)}});
  }
  for (const auto& [name, source, unit, description] : kEvidence) {
    if (!is_timed(row)) break;
    const auto number = figures.number(name);
    if (const std::string text = figures.text(name); !text.empty()) {
      evidence[name] = {{"value", number ? Json(*number) : Json(text)}, {"unit", about(name).first}};
      continue;
    }
    const bool of_gpus = source != Source::ceilings && source != Source::run && source != Source::launch;
    if (source == Source::optional || (of_gpus && on_host(row))) continue;
    const auto [why, how] = why_unknown(source, row, ceilings);
    add_unknown(unknown, name, why, figures.filled(how));
  }
  Json kernels = Json::array();
  if (const auto samples = run.samples.find(row); samples != run.samples.end())
    for (std::size_t i = 0; i < samples->second.kernels.size(); ++i)
      kernels.push_back({{"name", samples->second.kernels[i]}, {"count", samples->second.kernel_counts[i]}});
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  return {{"case", row.name()},
          {"op", row.op},
          {"problem", row.problem},
          {"dtype", row.dtype},
          {"variant", row.variant},
          {"status", to_string(row.status)},
          {"device", row.device},
          {"commit", row.commit},
          {"time_cold_us", number(row.time_cold_us)},
          {"time_warm_us", number(row.time_warm_us)},
          {"kernels", kernels},
          {"findings", findings},
          {"evidence", evidence},
          {"competitors", competitors},
          {"unknown", unknown}};
}

std::string explanation_text(const nlohmann::ordered_json& explanation, const SweepRow& row) {
  const auto text_of = [](const Json& json) { return json.get<std::string>(); };
  std::string text = fmt::format("{} on {}, commit {}\n", row.name(), row.device, row.commit);
  const auto us = [](const std::optional<double>& time) {
    return time ? fmt::format("{:.2f} us", *time) : std::string("not timed");
  };
  text += is_timed(row) ? fmt::format("cold {}, warm {}{}\n", us(row.time_cold_us), us(row.time_warm_us),
                                      row.bound == Bound() ? "" : ", bound " + row.bound.text())
                        : fmt::format("{}\n", to_string(row.status));
  for (const Json& kernel : explanation["kernels"])
    if (row.op != kWholeNetwork)
      text += fmt::format("kernel {} x {}\n", kernel["count"].dump(), text_of(kernel["name"]));
  for (const Json& finding : explanation["findings"])
    text += fmt::format("\n{}: {}\n  next: {}\n", text_of(finding["rule"]), text_of(finding["sentence"]),
                        text_of(finding["experiment"]));
  std::vector<Cells> evidence{{"evidence", "", "", ""}};
  for (const auto& [name, one] : explanation["evidence"].items()) {
    const Json& value = one["value"];
    const auto [unit, description] = about(name);
    evidence.push_back({name, value.is_string() ? text_of(value) : three_digits(value), unit, description});
  }
  if (evidence.size() > 1) text += "\n" + aligned(evidence);
  std::vector<Cells> others{{"the same problem by", "kind", "cold us", "times as fast", ""}};
  for (const Json& one : explanation["competitors"])
    others.push_back({one["variant"], one["kind"], fmt::format("{:.2f}", one["time_cold_us"].get<double>()),
                      fmt::format("{:.3f}", one["times_as_fast"].get<double>()), one["paired"] ? "paired" : ""});
  if (others.size() > 1) text += "\n" + aligned(others);
  for (const Json& one : explanation["unknown"])
    text += fmt::format("\nnot known: {}\n  why: {}\n  get it: {}\n",
                        fmt::join(one["figures"].get<std::vector<std::string>>(), ", "), text_of(one["why"]),
                        text_of(one["how"]));
  return text;
}

std::string explain_rules_markdown() {
  std::string text = "| rule | holds where | what it says | the next experiment |\n|---|---|---|---|\n";
  const auto cell = [](std::string_view raw) {
    std::string escaped;
    for (const char c : raw) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
    return escaped;
  };
  for (const ExplainRule& rule : explain_rules())
    text += fmt::format("| `{}` | `{}` | {} | {} |\n", rule.name, cell(rule.condition), rule.sentence, rule.experiment);
  text += "\n| figure | unit | what it is |\n|---|---|---|\n";
  for (const EvidenceFigure& figure : kEvidence)
    if (*figure.description != '\0')
      text += fmt::format("| `{}` | {} | {} |\n", figure.name, figure.unit, figure.description);
  return text;
}

}  // namespace noisefloor
