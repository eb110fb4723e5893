#include "bench/sweep/benchmark_flags.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

void require_one_of(const std::string& flag, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    throw InvalidInput(fmt::format("{} is '{}', not one of {}", flag, value, fmt::join(allowed, ", ")));
}

void require_count(const std::string& flag, const std::string& value) {
  constexpr int kMost = 1'000'000;
  int count = 0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), count);
  if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || count < 1 || count > kMost)
    throw InvalidInput(fmt::format("{} is '{}', not a whole number from 1 to {}", flag, value, kMost));
}

bool parse_switch(const std::string& flag, const std::string& value) {
  require_one_of(flag, value, {"true", "false", "yes", "no", "on", "off", "1", "0"});
  return value == "true" || value == "yes" || value == "on" || value == "1";
}

// The message for what the library did not take: a flag of another name, or a value that it cannot read.
std::string not_a_benchmark_flag(const std::string& argument) {
  std::vector<std::string> known = split_list(
      "list_tests,filter,min_time,min_warmup_time,repetitions,enable_random_interleaving,report_aggregates_only,"
      "display_aggregates_only,format,out,out_format,color,counters_tabular,perf_counters,context,time_unit");
  for (std::string& name : known) name.insert(0, "--benchmark_");
  const std::string name = argument.substr(0, argument.find('='));
  if (std::ranges::count(known, name) > 0)
    return fmt::format("'{}': Google Benchmark cannot read this value", argument);
  return fmt::format("'{}' is not a flag of Google Benchmark{}", argument, did_you_mean(name, known));
}

}  // namespace

bool BenchmarkFlags::matches(const std::string& case_name) const {
  return !pattern || pattern(case_name) != negative;
}

BenchmarkFlags parse_benchmark_flags(const std::vector<std::string>& arguments) {
  BenchmarkFlags flags;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "true" : argument.substr(equals + 1);
    if (value.empty()) throw InvalidInput(flag + ": its value is empty; give one, or leave it out");
    if (flag == "--benchmark_format" || flag == "--benchmark_out_format") {
      require_one_of(flag, value, {"console", "json", "csv"});
      (flag == "--benchmark_format" ? flags.format : flags.out_format) = value;
    } else if (flag == "--benchmark_color") {
      require_one_of(flag, value, {"auto", "true", "false", "yes", "no", "on", "off", "1", "0"});
    } else if (flag == "--benchmark_time_unit") {
      require_one_of(flag, value, {"ns", "us", "ms", "s"});
    } else if (flag == "--benchmark_list_tests") {
      flags.list_tests = parse_switch(flag, value);
    } else if (flag == "--benchmark_repetitions") {
      require_count(flag, value);
      flags.repetitions = true;
    } else if (flag == "--benchmark_out" && equals != std::string::npos) {
      flags.out = value;
    } else if (flag == "--benchmark_filter" && equals != std::string::npos) {
      flags.filter = value;
    }
  }
  if (flags.filter.empty() || flags.filter == "all") return flags;
  flags.negative = flags.filter[0] == '-';
  flags.pattern = name_filter("--benchmark_filter", flags.filter.substr(flags.negative ? 1 : 0));
  return flags;
}

std::vector<std::string> flags_of_library(const std::vector<std::string>& arguments, const BenchmarkFlags& flags) {
  std::vector<std::string> kept;
  for (const std::string& argument : arguments)
    if (!argument.starts_with("--benchmark_out=") && !argument.starts_with("--benchmark_out_format=") &&
        !argument.starts_with("--benchmark_filter="))
      kept.push_back(argument);
  if (!flags.out.empty()) kept.emplace_back("--benchmark_out=/dev/null");
  return kept;
}

void initialize_library(const std::string& program, const std::vector<std::string>& arguments,
                        const BenchmarkFlags& flags) {
  static std::vector<std::string> texts;  // it keeps the pointer to the program's name
  texts = flags_of_library(arguments, flags);
  texts.insert(texts.begin(), program);
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) throw InvalidInput(not_a_benchmark_flag(pointers[1]));
}

std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         std::initializer_list<std::string_view> options,
                                         std::initializer_list<std::string_view> flags) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = std::string_view(arguments[i]).substr(0, arguments[i].find('='));
    if (std::ranges::count(options, name) > 0) {
      if (name == arguments[i]) ++i;  // its value is the next
    } else if (std::ranges::count(flags, std::string_view(arguments[i])) == 0) {
      kept.push_back(arguments[i]);
    }
  }
  return kept;
}

}  // namespace noisefloor
