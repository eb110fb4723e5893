// Command lines: Google Benchmark's flags, as `noisefloor sweep` takes them, and what is given on. They are checked
// here: the library exits on a value that it does not know, sometimes with 0, and finds a file that it cannot write
// only after the run folder was made.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
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
  bool matches(const std::string& case_name) const;

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

// A command line for another process: `arguments` without these options and their values ("--out DIR", "--out=DIR"),
// and without these flags.
std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         std::initializer_list<std::string_view> options,
                                         std::initializer_list<std::string_view> flags = {});

}  // namespace noisefloor
