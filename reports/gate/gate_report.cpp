#include "reports/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/totals/text_tables.h"

namespace noisefloor {
namespace {

// Rows shown one by one; the rest is counted. GitHub refuses a comment of more than 65,536 characters.
constexpr std::size_t kTerminalRows = 40;
constexpr std::size_t kMarkdownRows = 100;
constexpr std::size_t kMarkdownCharacters = 65000;

std::string microseconds(double us) {
  if (us >= 1000) return fmt::format("{:.0f}", us);
  return us >= 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.2f}", us);
}
std::string percent(double change) {
  return fmt::format("{:+.1f} %", 100 * change);
}
std::string percent(const std::optional<double>& change) {
  return change ? percent(*change) : "-";
}

std::string variants(const RowPair& pair) {
  if (pair.a == nullptr || pair.b == nullptr || pair.a->variant == pair.b->variant) return pair.named().variant;
  return pair.a->variant + " / " + pair.b->variant;
}

Cells row_header(const GateResult& result) {
  Cells header = {"op", "problem", "dtype", "variant"};
  for (const char* phase : {"warm", "cold"})
    header.insert(header.end(),
                  {fmt::format("{} {} us", phase, result.name_a), fmt::format("{} {} us", phase, result.name_b), phase,
                   fmt::format("{} cycles", phase)});
  if (!result.judged) return header;
  header.insert(header.begin(), {"verdict", "by"});
  header.insert(header.end(), {"noise %", "why"});
  return header;
}
Cells row_cells(const GateResult& result, std::size_t i) {
  const RowChange& change = result.rows[i].change;
  const SweepRow& row = change.rows.named();
  Cells cells = {row.op, row.problem, row.dtype, variants(change.rows)};
  const auto add = [&](const PhaseChange* phase) {
    if (phase == nullptr)
      cells.insert(cells.end(), 4, "-");
    else
      cells.insert(cells.end(), {microseconds(phase->a_us), microseconds(phase->b_us), percent(phase->change),
                                 percent(phase->cycle_change)});
  };
  add(change.warm ? &*change.warm : nullptr);
  add(&change.cold);
  if (!result.judged) return cells;
  const GateRow& verdict = result.rows[i];
  cells.insert(cells.begin(), {to_string(verdict.verdict), phases_text(verdict.by)});
  const std::string warm_noise = verdict.warm ? fmt::format("{:.1f} / ", 100 * verdict.warm->noise) : "";
  cells.push_back(fmt::format("{}{:.1f}", warm_noise, 100 * verdict.cold.noise));
  cells.push_back(verdict.reason);
  return cells;
}

Cells total_header(const GateResult& result) {
  return {"network", "op",   "dtype",         "variant", result.name_a + " us", result.name_b + " us",
          "cold",    "warm", "problems timed"};
}
std::string timed(const NetworkTotal& total) {
  return total.problems == 0 ? "none" : fmt::format("{} of {}", total.problems - total.cold.missing, total.problems);
}
Cells total_cells(const TotalChange& total) {
  const bool both = total.a.problems > 0 && total.b.problems > 0 && total.a.cold.missing == total.b.cold.missing;
  const auto sum = [](const NetworkTotal& side) { return side.problems == 0 ? "-" : microseconds(side.cold.us); };
  const bool both_warm =
      both && total.a.warm.missing == total.a.cold.missing && total.b.warm.missing == total.b.cold.missing;
  return {total.network,
          total.op,
          total.dtype,
          total.choice,
          sum(total.a),
          sum(total.b),
          both ? percent(total.b.cold.us / total.a.cold.us - 1) : "-",
          both_warm ? percent(total.b.warm.us / total.a.warm.us - 1) : "-",
          both ? timed(total.a) : timed(total.a) + " and " + timed(total.b)};
}

// Rows worth showing one by one: with verdicts those that did not simply pass.
std::size_t shown_rows(const GateResult& result, std::size_t most) {
  if (!result.judged) return std::min(result.rows.size(), most);
  const auto passed = std::find_if(result.rows.begin(), result.rows.end(),
                                   [](const GateRow& row) { return row.verdict == GateVerdict::pass; });
  return std::min(static_cast<std::size_t>(passed - result.rows.begin()), most);
}

std::vector<std::string> left_out(const GateResult& result, std::size_t shown) {
  if (shown == result.rows.size()) return {};
  if (!result.judged) return {fmt::format("{} more rows changed by less", result.rows.size() - shown)};
  std::string counts;
  for (const GateVerdict verdict :
       {GateVerdict::regressed, GateVerdict::ambiguous, GateVerdict::improved, GateVerdict::pass}) {
    const auto count = std::count_if(result.rows.begin() + static_cast<std::ptrdiff_t>(shown), result.rows.end(),
                                     [&](const GateRow& row) { return row.verdict == verdict; });
    if (count > 0) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, to_string(verdict));
  }
  return {"not shown: " + counts};
}

const char* heading(GateGap::Weight weight) {
  constexpr const char* kNames[] = {"broke", "not compared", "noted"};
  return kNames[static_cast<std::size_t>(weight)];
}

std::string headline(const GateResult& result) {
  if (!result.judged) return result.headline;
  std::string text =
      fmt::format("{}: {} rows compared: {} regressed, {} ambiguous, {} improved, {} pass", result.device,
                  result.rows.size(), result.count(GateVerdict::regressed), result.count(GateVerdict::ambiguous),
                  result.count(GateVerdict::improved), result.count(GateVerdict::pass));
  const std::pair<std::size_t, const char*> more[] = {
      {result.count(GateGap::Weight::fails), "broke"},
      {result.count(GateGap::Weight::blocks), "could not be compared"},
      {result.count(GateGap::Weight::noted), "noted"},
      {result.untimed, "timed in neither"},
      {result.kept.size(), "run the same code and were kept"},
  };
  for (const auto& [count, what] : more)
    if (count > 0) text += fmt::format("; {} {}", count, what);
  if (const std::size_t much = result.much_slower_ambiguous(); much > 0)
    text += fmt::format("; {} ambiguous and slower by more than {:.0f} %", much, 100 * kMostAmbiguous);
  if (!result.launches.changes.empty())
    text += fmt::format("; launches changed in {} ways, {} of ours", result.launches.changes.size(),
                        result.launches.ours());
  return text;
}

TextReport report_of(const GateResult& result, std::size_t most) {
  const std::size_t shown = shown_rows(result, most);
  std::vector<Cells> rows{row_header(result)}, totals{total_header(result)},
      gaps{{"", "op", "problem", "dtype", "variant", "what"}},
      launches{{"", "op", "variant", "rows", "first problem", "what", "kernel"}};
  for (std::size_t i = 0; i < shown; ++i) rows.push_back(row_cells(result, i));
  for (const GateGap& gap : result.gaps)
    gaps.push_back({heading(gap.weight), gap.id.op, gap.id.problem, gap.id.dtype, gap.id.variant, gap.what});
  for (const LaunchChange& change : result.launches.changes)
    for (const LaunchChange::Kernel& kernel : change.kernels) {
      const SweepRow& first = *change.rows.front();
      launches.push_back({change.of_library ? "a library's" : "ours", first.op, first.variant,
                          std::to_string(change.rows.size()), first.problem, what_changed(kernel), kernel.name});
    }
  for (const TotalChange& total : result.totals) totals.push_back(total_cells(total));
  return {headline(result),
          {{"", rows, left_out(result, shown)},
           shortened_part("Rows without two times", gaps, most),
           shortened_part("Launches", launches, most),
           shortened_part("Totals of one forward pass", totals, most),
           {"Conditions", {}, result.conditions}}};
}

}  // namespace

std::string phases_text(const std::vector<Phase>& phases) {
  std::string text;
  for (const Phase phase : phases) text += (text.empty() ? "" : " and ") + std::string(to_string(phase));
  return text;
}

std::string terminal_text(const GateResult& result) {
  return terminal_text(report_of(result, kTerminalRows));
}

std::string markdown_text(const GateResult& result) {
  std::size_t most = kMarkdownRows;
  std::string text = markdown_text(report_of(result, most));
  while (text.size() > kMarkdownCharacters && (most /= 2) > 0) text = markdown_text(report_of(result, most));
  return text;
}

}  // namespace noisefloor
