// What limits a row, from the files of its run: figures, rules over them, and the next experiment.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reports/run/ceilings_csv.h"
#include "reports/run/run_files.h"

namespace noisefloor {

// A condition is comparisons joined by " and ": FIGURE < NUMBER (also <=, >, >=), FIGURE = WORD|WORD, FIGURE has WORD.
// One whose figure is not known does not hold. In sentence and experiment {name} stands for a figure;
// {why_above_roof}, {options} and {pair_options} (its competitor's too) may be blank, {ncu} is a command.
struct ExplainRule {
  const char *name, *condition, *sentence, *experiment;
};
std::span<const ExplainRule> explain_rules();  // in their order: the first that holds is what limits

bool on_host(const SweepRow& row);

// What is known of a row by name: each column of sweep.csv, and what follows from columns, ceilings and other rows.
class RowFigures {
 public:
  // The rows have their places under the roof (complete_rows).
  RowFigures(const RunFiles& run, const SweepRow& row, const CeilingTable& ceilings);

  std::optional<double> number(std::string_view name) const;
  std::string text(std::string_view name) const;  // of numbers three digits; empty: not known
  void set(const std::string& name, double value) { numbers_[name] = value; }
  void set_competitor(const SweepRow& competitor, double times_as_fast);
  // Both throw std::logic_error for a name that no row has, and for what is not written as said above.
  bool holds(std::string_view condition) const;
  std::string filled(std::string_view text) const;

 private:
  std::map<std::string, double, std::less<>> numbers_;
  std::map<std::string, std::string, std::less<>> texts_, insertions_;
};

// All that is said of a row, one of the run's: `kernels` of a launch, `findings` (the first is what limits: rule,
// sentence, experiment), `evidence` (by name: value, unit), `competitors` (fastest first; `times_as_fast` above 1: the
// competitor is) and `unknown` (figures, why, how).
nlohmann::ordered_json explain(const RunFiles& run, const SweepRow& row, const CeilingTable& ceilings);
std::string explanation_text(const nlohmann::ordered_json& explanation, const SweepRow& row);
std::string three_digits(double value);

std::string explain_rules_markdown();  // docs/explain.md between its markers: rules, then figures that are no columns

}  // namespace noisefloor
