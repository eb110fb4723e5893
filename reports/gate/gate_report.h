// What the gate and `compare` found, for readers: a table for the terminal, GitHub-flavoured Markdown, JUnit XML, JSON.
#pragma once

#include <string>
#include <vector>

#include "reports/gate/gate.h"

namespace noisefloor {

// What both commands print: worst rows first, rows without a partner, totals, what differs between the machines.
struct ComparisonText {
  std::string name_a, name_b;      // what the columns are called: "baseline" and "candidate", or two folders
  std::vector<RowChange> changes;  // in the order shown
  std::vector<GateRow> verdicts;   // empty: no verdict; else as long as `changes`
  std::vector<GateGap> gaps;
  std::vector<TotalChange> totals;
  LaunchChanges launches;
  std::vector<std::string> conditions;
  std::string headline;  // "regressed: 3 of 812 rows"
};
ComparisonText text_of(const GateResult& result);

std::string phases_text(const std::vector<Phase>& phases);  // "warm and cold"
std::string terminal_text(const ComparisonText& text);
std::string markdown_text(const ComparisonText& text);  // below what GitHub takes as one comment

// A test case a row: regressed fails, a row that cannot be compared is an error, an ambiguous or new one is skipped.
// And one a change of launches: skipped, or with --launches a failure where it is ours.
std::string junit_xml(const GateResult& result);

// The candidate's times for pages that show trends (docs/ci.md), each with the noise that the gate allows for. Rows
// without a time in one of the two runs are not there: exit code and JUnit have them.
std::string bencher_json(const GateResult& result);  // ns, by case: cold as `latency`, serial warm `warm-latency`
std::string benchmark_action_json(const GateResult& result);  // us, "CASE (cold)" and "CASE (warm)"

}  // namespace noisefloor
