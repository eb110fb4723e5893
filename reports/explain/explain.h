// What limits a row, from the files of its run: figures, rules over them, and the next experiment.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

struct Explanation {
  struct Finding {
    std::string rule, sentence, experiment;
  };
  struct Evidence {
    std::string name, unit, description;
    std::string text;               // of the value
    std::optional<double> value{};  // nothing of words
  };
  struct Unknown {
    std::vector<std::string> names;
    std::string why, how;
  };
  struct Competitor {
    const SweepRow* row;
    double times;  // this row's cold time over the competitor's: above 1 the competitor is faster
    bool paired;   // by a paired comparison
  };
  const SweepRow* row = nullptr;
  std::vector<Finding> findings;  // the first is what limits
  std::vector<Evidence> evidence;
  std::vector<Competitor> competitors;  // fastest first
  std::vector<Unknown> unknown;
};
// `row` is one of the run's; both outlive the result.
Explanation explain(const RunFiles& run, const SweepRow& row, const CeilingTable& ceilings);

std::string explanation_text(const Explanation& explanation);
std::string explanation_json(const Explanation& explanation);
std::string explain_rules_markdown();  // docs/explain.md between its markers: rules, then figures that are no columns

}  // namespace noisefloor
