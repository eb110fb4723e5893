// --breakdown of the commands that run networks.
#pragma once

#include <string>

#include "bench/commands/output_files.h"
#include "bench/commands/pipeline_common.h"

namespace noisefloor {

struct BreakdownArguments {
  bool table = false;
  std::string csv, rows, trace;

  bool wanted() const { return table || !csv.empty() || !rows.empty() || !trace.empty(); }
};
// Adds --breakdown, --breakdown-csv, --breakdown-rows and --trace.
void add_breakdown_options(CLI::App& command, BreakdownArguments& arguments);

// Adds the files to `files`, and says what would keep a breakdown from being made, before anything is loaded or
// measured. Throws InvalidInput; also where a GPU is to be traced and there is no CUPTI.
void check_breakdown(const BreakdownArguments& arguments, const NetworkArguments& network, OutputFiles& files);

// Measures, writes the files (which `files` puts in place) and prints the tables, where asked to. Throws what
// measure_breakdown does.
void break_down(const BreakdownArguments& arguments, const NetworkArguments& network, OpenNetwork& open,
                const Launch& enqueue, const std::string& what, OutputFiles& files);

}  // namespace noisefloor
