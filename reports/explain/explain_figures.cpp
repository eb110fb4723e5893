// The figures of a row that rules compare, and the language of their conditions.
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "reports/explain/explain.h"
#include "reports/run/columns.h"
#include "reports/run/csv.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

using Number = std::optional<double>;

Number ratio(const Number& a, const Number& b, double scale = 1) {
  return a && b && *b > 0 ? Number(scale * *a / *b) : std::nullopt;
}

// The shortest other launch of the run that has next to nothing to do, by the roof: what a launch costs, or a little
// more. Where even that one takes long it is a slow kernel, and says nothing of launches.
Number launch_cost(const RunFiles& run, const SweepRow& explained) {
  constexpr double kNothingToDoUs = 1, kLongestUs = 20;
  Number shortest;
  for (const SweepRow& row : run.rows) {
    if (&row == &explained || row.device != explained.device || !is_timed(row) || of_worker(row) ||
        row.op == kWholeNetwork || !row.pct_of_roof)
      continue;
    if (*row.pct_of_roof / 100 * *row.time_cold_us > kNothingToDoUs || *row.time_cold_us > kLongestUs) continue;
    if (!shortest || *row.time_cold_us < *shortest) shortest = row.time_cold_us;
  }
  return shortest;
}

// Rows of other programs and older runs say nothing.
std::string why_above_roof(const SweepRow& row) {
  return row.above_roof.empty() ? "" : ": " + row.above_roof;
}

std::string plugin_option(const SweepRow& row) {
  return row.plugin.empty() ? "" : " --plugin " + row.plugin;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Calls `take` with each part of `text` between `separator`s.
template <class Take>
void for_each_part(std::string_view text, std::string_view separator, const Take& take) {
  for (;;) {
    const std::size_t end = text.find(separator);
    take(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + separator.size());
  }
}

bool compare(double a, std::string_view comparison, double b) {
  if (comparison == "<") return a < b;
  if (comparison == "<=") return a <= b;
  if (comparison == ">") return a > b;
  if (comparison == ">=") return a >= b;
  if (comparison == "=") return a == b;
  throw std::logic_error(fmt::format("explain: '{}' compares no numbers", comparison));
}

}  // namespace

std::string three_digits(double value) {
  if (value == std::floor(value) || std::abs(value) >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, std::abs(value) >= 10 ? 1 : 2);
}

bool on_host(const SweepRow& row) {
  return row.kind == "host" || (!row.arch.empty() && !row.arch.starts_with("sm_"));
}

RowFigures::RowFigures(const RunFiles& run, const SweepRow& row, const CeilingTable& ceilings) {
  for (const SweepColumn& column : sweep_columns()) {
    if (column.text())
      texts_[column.name] = column.write(row);
    else if (const Number value = column.number(row))
      numbers_[column.name] = *value;
  }
  const auto put = [&](const char* name, const Number& value) {
    if (value) numbers_[name] = *value;
  };
  texts_["competitor"].clear();  // who is fastest
  insertions_["why_above_roof"] = why_above_roof(row);
  insertions_["options"] = insertions_["pair_options"] = (on_host(row) ? " --device host" : "") + plugin_option(row);
  insertions_["ncu"] =
      filled(on_host(row)         ? "perf record noisefloor run {op}/{problem}/{dtype}/{variant}{options}"
             : row.plugin.empty() ? "scripts/ncu {op}/{problem}/{dtype}/{variant}"
                                  : "Nsight Compute on noisefloor run {op}/{problem}/{dtype}/{variant}{options}");
  if (!is_timed(row)) return;
  const Number us = row.time_cold_us, memory = ceilings.rate("dram_copy"), compute = ceilings.rate(row.bound.ceiling);
  put("memory_pct", ratio(row.gbps, memory, 100));
  put("compute_pct", ratio(row.gflops, compute, 100));
  if (memory && row.ai) put("balance", ratio(*row.ai * *memory, compute));
  if (row.dram_read_bytes && row.dram_write_bytes) {
    const double moved = *row.dram_read_bytes + *row.dram_write_bytes;
    put("traffic", ratio(moved, row.bytes));
    put("dram_pct", ratio(ratio(moved, us, 1e-3), memory, 100));
  }
  put("l2_pct", ratio(ratio(row.l2_bytes, us, 1e-3), ceilings.rate("l2"), 100));
  if (numbers_.contains("compute_pct") && row.bound.ceiling.starts_with("tensor"))
    put("tensor_share_pct", ratio(numbers_["compute_pct"], row.tensor_pipe_pct, 100));
  if (row.waves) put("wave_fill_pct", ratio(row.waves, std::ceil(*row.waves), 100));
  if (const auto samples = run.samples.find(row); samples != run.samples.end() && !samples->second.kernels.empty()) {
    double kernels = 0;
    for (const std::size_t count : samples->second.kernel_counts) kernels += static_cast<double>(count);
    put("kernels", kernels);
    // The limit is that of one kernel, and the warps are counted over all of them.
    if (kernels == 1) put("occupancy_used_pct", ratio(row.occupancy_pct, row.occupancy_limit_pct, 100));
  }
  put("launch_us", launch_cost(run, row));
  put("launch_pct", ratio(launch_cost(run, row), us, 100));
  put("warm_pct", ratio(row.time_warm_us, us, 100));
  if (const Ceiling* ceiling = ceilings.find(row.bound.ceiling))
    put("clock_pct", ratio(row.sm_clock_mhz, ceiling->sm_clock_mhz, 100));
}

void RowFigures::set_competitor(const SweepRow& competitor, double times_as_fast) {
  texts_["competitor"] = competitor.variant;
  if (competitor.plugin != texts_["plugin"]) insertions_["pair_options"] += plugin_option(competitor);
  numbers_["competitor_ratio"] = times_as_fast;
}

std::optional<double> RowFigures::number(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : Number(found->second);
}

std::string RowFigures::text(std::string_view name) const {
  if (const Number value = number(name)) return three_digits(*value);
  const auto found = texts_.find(name);
  return found == texts_.end() ? "" : found->second;
}

bool RowFigures::holds(std::string_view condition) const {
  bool all = true;
  for_each_part(condition, " and ", [&](std::string_view comparison) {
    const std::size_t first = comparison.find(' '), second = comparison.find(' ', first + 1);
    if (second == std::string_view::npos)
      throw std::logic_error(fmt::format("explain: '{}' is not 'figure comparison value'", comparison));
    const std::string_view name = comparison.substr(0, first), how = comparison.substr(first + 1, second - first - 1);
    const std::string_view value = comparison.substr(second + 1);
    if (const Number limit = parse_number<double>(value)) {
      const Number figure = number(name);
      all = all && figure && compare(*figure, how, *limit);
      return;
    }
    const auto found = texts_.find(name);
    if (found == texts_.end() || (how != "=" && how != "has"))
      throw std::logic_error(fmt::format("explain: '{}' compares no words", comparison));
    bool any = how == "has" && found->second.find(value) != std::string::npos;
    if (how == "=") for_each_part(value, "|", [&](std::string_view word) { any = any || found->second == word; });
    all = all && any;
  });
  return all;
}

std::string RowFigures::filled(std::string_view text_with_names) const {
  std::string all;
  for (std::size_t at = 0; at < text_with_names.size(); ++at) {
    if (text_with_names[at] != '{') {
      all += text_with_names[at];
      continue;
    }
    const std::size_t end = text_with_names.find('}', at);
    const std::string_view name = text_with_names.substr(at + 1, end - at - 1);
    const auto insertion = insertions_.find(name);
    if (end == std::string_view::npos ||
        (insertion == insertions_.end() && !numbers_.contains(name) && !texts_.contains(name)))
      throw std::logic_error(fmt::format("explain: '{}' names no figure of the row", text_with_names.substr(at)));
    const std::string value = text(name);
    all += insertion != insertions_.end() ? insertion->second : value.empty() ? "not said" : value;
    at = end;
  }
  return all;
}

}  // namespace noisefloor
