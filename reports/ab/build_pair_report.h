// What `noisefloor ab` found, for readers: a table for the terminal, GitHub-flavoured Markdown, CSV.
#pragma once

#include <string>
#include <vector>

#include "reports/run/pair_ratio.h"
#include "reports/totals/text_tables.h"

namespace noisefloor {

// Worst first: a line for each case that is not equal, and a count of each verdict. `old_name`, `new_name`: the builds.
struct BuildPairText {
  const std::vector<BuildPair>& pairs;
  double resolve;
  std::string old_name, new_name;
  TextPart beside = {};  // what else differs
};
TextReport report_of(const BuildPairText& text);
// Every case.
std::string csv_text(const BuildPairText& text);

}  // namespace noisefloor
