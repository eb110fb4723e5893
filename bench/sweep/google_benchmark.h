// Google Benchmark as `noisefloor sweep` drives it: its flags, and what its reporters say.
//
// Flags are checked here: the library exits on a value that it does not know, sometimes with 0, and finds a file that
// it cannot write only after the run folder was made.
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reports/run/case_id.h"

namespace noisefloor {

struct BenchmarkFlags {
  bool list_tests = false;
  bool repetitions = false;
  std::string filter;
  std::string format;  // its display is asked for: console, json or csv; empty: ours
  std::string out;     // empty: no file
  std::string out_format = "json";

  // Whether `filter` lets this case run: a regular expression, searched for; after a "-", what must not be found.
  bool matches(const std::string& case_name) const { return !pattern || pattern(case_name) != negative; }

  NameFilter pattern;  // none: all
  bool negative = false;
};

// Throws InvalidInput naming the flag and what it takes.
BenchmarkFlags parse_benchmark_flags(const std::vector<std::string>& arguments);

// What the library itself is started with. Its filter reads another grammar, and has nothing left to do. It would write
// --benchmark_out case by case, and not say that a disk is full. Its file reporter is one of ours, and runs only where
// the library has a file.
std::vector<std::string> flags_of_library(const std::vector<std::string>& arguments, const BenchmarkFlags& flags);

// Starts it with them. Throws InvalidInput on a flag of another name, or a value that it cannot read.
void initialize_library(const std::string& program, const std::vector<std::string>& arguments,
                        const BenchmarkFlags& flags);

// What one of the library's reporters says of a sweep, gathered as one text: it is written whole at the end, or not at
// all. A counter that was not measured is not a number inside and is left out: JSON has no NaN, and the CSV reporter
// needs all names of counters at once.
class GatheredReporter final : public benchmark::BenchmarkReporter {
 public:
  // "json", "csv" or "console"; the library's own `display` knows of --benchmark_color and
  // --benchmark_counters_tabular, too.
  GatheredReporter(std::string format, bool display);

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

  // After the last run. Throws std::runtime_error where it should be JSON and no parser would read it.
  std::string text();

 private:
  std::string format_;
  std::shared_ptr<benchmark::BenchmarkReporter> writer_;
  std::optional<Context> context_;
  std::vector<Run> runs_;
};

}  // namespace noisefloor
