// What the gate and `compare` found, for readers: a table for the terminal, GitHub-flavoured Markdown, JUnit XML, JSON.
#pragma once

#include <string>
#include <vector>

#include "reports/gate/gate.h"

namespace noisefloor {

std::string phases_text(const std::vector<Phase>& phases);  // "warm and cold"
// Worst rows first, rows without a partner, totals, what differs between the machines.
std::string terminal_text(const GateResult& result);
std::string markdown_text(const GateResult& result);  // below what GitHub takes as one comment

// A test case a row: regressed fails, a row that cannot be compared is an error, an ambiguous or new one is skipped.
// And one a change of launches: skipped, or with --launches a failure where it is ours.
std::string junit_xml(const GateResult& result);

// The candidate's times for pages that show trends (docs/ci.md), each with the noise that the gate allows for. Rows
// without a time in one of the two runs are not there: exit code and JUnit have them.
std::string bencher_json(const GateResult& result);  // ns, by case: cold as `latency`, serial warm `warm-latency`
std::string benchmark_action_json(const GateResult& result);  // us, "CASE (cold)" and "CASE (warm)"

}  // namespace noisefloor
