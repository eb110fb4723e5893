// Google Benchmark's flags, as `noisefloor sweep` takes them. They are checked here: the library exits on a value that
// it does not know, sometimes with 0, and finds a file that it cannot write only after the run folder was made.
#pragma once

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

namespace noisefloor {

struct BenchmarkFlags {
  bool list_tests = false;
  bool format = false;  // its reporters are asked for
  bool repetitions = false;
  std::string filter;
  std::string out;  // empty: no file

  // Whether `filter` lets this case run: a regular expression, searched for; after a "-", what must not be found.
  bool matches(const std::string& case_name) const;

  std::regex pattern{"."};
  bool negative = false;
};

// Throws InvalidInput naming the flag and what it takes.
BenchmarkFlags parse_benchmark_flags(const std::vector<std::string>& arguments);

// Throws InvalidInput when --benchmark_out names a file that cannot be written.
void require_writable_out(const BenchmarkFlags& flags);

// The command line that resumes the run folder `out`: without --fresh, and without --benchmark_out, which would
// begin its file again.
std::vector<std::string> command_line_to_go_on(const std::vector<std::string>& arguments,
                                               const std::filesystem::path& out);

}  // namespace noisefloor
