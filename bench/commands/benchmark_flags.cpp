#include "bench/commands/benchmark_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "kernels/core/fields.h"

namespace noisefloor {
namespace {

void require_one_of(const std::string& flag, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    throw InvalidInput(fmt::format("{} is '{}', not one of {}", flag, value, fmt::join(allowed, ", ")));
}

bool parse_switch(const std::string& flag, const std::string& value) {
  require_one_of(flag, value, {"true", "false", "yes", "no", "on", "off", "1", "0"});
  return value == "true" || value == "yes" || value == "on" || value == "1";
}

}  // namespace

bool BenchmarkFlags::matches(const std::string& case_name) const {
  return std::regex_search(case_name, pattern) != negative;
}

BenchmarkFlags parse_benchmark_flags(const std::vector<std::string>& arguments) {
  BenchmarkFlags flags;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "true" : argument.substr(equals + 1);
    if (flag == "--benchmark_format" || flag == "--benchmark_out_format") {
      require_one_of(flag, value, {"console", "json", "csv"});
      if (flag == "--benchmark_format") flags.format = true;
    } else if (flag == "--benchmark_color") {
      require_one_of(flag, value, {"auto", "true", "false", "yes", "no", "on", "off", "1", "0"});
    } else if (flag == "--benchmark_time_unit") {
      require_one_of(flag, value, {"ns", "us", "ms", "s"});
    } else if (flag == "--benchmark_list_tests") {
      flags.list_tests = parse_switch(flag, value);
    } else if (flag == "--benchmark_repetitions") {
      flags.repetitions = true;
    } else if (flag == "--benchmark_out" && equals != std::string::npos) {
      flags.out = value;
    } else if (flag == "--benchmark_filter" && equals != std::string::npos) {
      flags.filter = value;
    }
  }
  if (flags.filter.empty() || flags.filter == "all") return flags;
  flags.negative = flags.filter[0] == '-';
  try {
    flags.pattern = std::regex(flags.filter.substr(flags.negative ? 1 : 0), std::regex::extended);
  } catch (const std::regex_error&) {
    throw InvalidInput(fmt::format("--benchmark_filter: '{}' is not a regular expression", flags.filter));
  }
  return flags;
}

void require_writable_out(const BenchmarkFlags& flags) {
  if (flags.out.empty()) return;
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(flags.out, ignored);
  if (!std::ofstream(flags.out, std::ios::app))
    throw InvalidInput(fmt::format("--benchmark_out: '{}' cannot be written", flags.out));
  if (is_new) std::filesystem::remove(flags.out, ignored);
}

std::vector<std::string> command_line_to_go_on(const std::vector<std::string>& arguments,
                                               const std::filesystem::path& out) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--out") {
      ++i;  // and its value
      continue;
    }
    const bool dropped = argument == "--fresh" || argument.starts_with("--out=") ||
                         argument.starts_with("--benchmark_out=") || argument.starts_with("--benchmark_out_format=");
    if (!dropped) kept.push_back(argument);
  }
  kept.insert(kept.end(), {"--out", out.string()});
  return kept;
}

}  // namespace noisefloor
