#include "reports/totals/totals.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/run/csv.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : std::string();
}

// SOL-ExecBench's score: 1 at the roof, 0.5 at the best baseline. Blank where a baseline reaches the roof.
std::string sol_score(const SweepRow& row, const std::map<ProblemId, double>& baselines) {
  const auto baseline = baselines.find(row);
  if (!is_timed(row) || !row.pct_of_roof || baseline == baselines.end()) return {};
  const double roof_us = *row.time_cold_us * *row.pct_of_roof / 100, gap_of_baseline = baseline->second - roof_us;
  if (!(gap_of_baseline > 0)) return {};
  return fmt::format("{:.4g}", 1 / (1 + std::max(*row.time_cold_us - roof_us, 0.0) / gap_of_baseline));
}

}  // namespace

std::map<ProblemId, double> best_baselines(const std::vector<SweepRow>& rows) {
  std::map<ProblemId, double> best;
  for (const SweepRow& row : rows) {
    if (row.kind != "baseline" || !is_timed(row) || !row.lossy.empty()) continue;
    const auto [found, is_new] = best.try_emplace(row.problem_id(), *row.time_cold_us);
    if (!is_new) found->second = std::min(found->second, *row.time_cold_us);
  }
  return best;
}

void complete_rows(std::vector<SweepRow>& rows, const CeilingTable& ceilings) {
  const Ceiling* const memory = ceilings.find("dram_copy");
  if (memory == nullptr) return;
  std::map<std::pair<std::string, std::string>, std::string> ceiling_of;  // by op and dtype
  for (const SweepRow& row : rows)
    if (!row.bound.ceiling.empty()) ceiling_of[{row.op, row.dtype}] = row.bound.ceiling;
  for (SweepRow& row : rows) {
    if (!is_timed(row) || !row.flops || !(*row.bytes > 0.0)) continue;
    if (!row.gflops) row.gflops = *row.flops / *row.time_cold_us * 1e-3;
    if (!row.gbps) row.gbps = *row.bytes / *row.time_cold_us * 1e-3;
    if (!row.ai) row.ai = *row.flops / *row.bytes;
    const Ceiling* const compute = ceilings.find(ceiling_of[{row.op, row.dtype}]);
    if (!row.attainable_gflops && compute != nullptr) place_under_roof(row, *memory, *compute);
  }
  const auto baselines = best_baselines(rows);
  for (SweepRow& row : rows) row.others[kSolScore] = sol_score(row, baselines);
}

std::vector<const SweepRow*> fastest_rows(const std::vector<SweepRow>& rows, bool own_only) {
  std::vector<const SweepRow*> fastest;
  std::map<ProblemId, std::size_t> place;
  for (const SweepRow& row : rows) {
    if (!is_timed(row) || !row.lossy.empty() || (own_only && row.kind == "baseline")) continue;
    const auto [found, is_new] = place.try_emplace(row.problem_id(), fastest.size());
    if (is_new)
      fastest.push_back(&row);
    else if (*row.time_cold_us < *fastest[found->second]->time_cold_us)
      fastest[found->second] = &row;
  }
  return fastest;
}

void write_roofline_csv(const fs::path& file, const std::vector<SweepRow>& rows, const CeilingTable& ceilings) {
  std::string text =
      "op,variant,kind,dtype,problem,device,ai,ai_measured,gflops,gbps,ceiling_gflops,ceiling_gbps,attainable_gflops,"
      "pct_of_roof,bound,status,sol_score\n";
  for (const SweepRow& row : rows) {
    const auto score = row.others.find(kSolScore);
    std::optional<double> ai_measured;
    if (row.flops && row.dram_read_bytes && row.dram_write_bytes && *row.dram_read_bytes + *row.dram_write_bytes > 0)
      ai_measured = *row.flops / (*row.dram_read_bytes + *row.dram_write_bytes);
    text += csv_row(row.op, row.variant, row.kind, row.dtype, row.problem, row.device, number(row.ai),
                    number(ai_measured), number(row.gflops), number(row.gbps), number(ceilings.rate(row.bound.ceiling)),
                    number(ceilings.rate("dram_copy")), number(row.attainable_gflops), number(row.pct_of_roof),
                    row.bound.text(), to_string(row.status), score == row.others.end() ? "" : score->second);
  }
  write_atomically(file, text);
}

void write_plan_csv(const fs::path& file, const std::vector<SweepRow>& rows) {
  std::string text = "op,dtype,problem,variant\n";
  std::vector<SweepRow> usable;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(usable),
               [](const SweepRow& row) { return !of_worker(row) && row.plugin.empty() && row.op != kWholeNetwork; });
  for (const SweepRow* row : fastest_rows(usable, false))
    text += csv_row(row->op, row->dtype, row->problem, row->variant);
  write_atomically(file, text);
}

}  // namespace noisefloor
