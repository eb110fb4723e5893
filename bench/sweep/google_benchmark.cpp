#include "bench/sweep/google_benchmark.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "bench/platform/child_process.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"
#include "reports/run/csv.h"

namespace noisefloor {
namespace {

using benchmark::BenchmarkReporter;

// Flags that take one of a few words.
constexpr std::pair<std::string_view, const char*> kWords[] = {
    {"--benchmark_color", "auto,true,false,yes,no,on,off,1,0"},
    {"--benchmark_format", "console,json,csv"},
    {"--benchmark_list_tests", "true,false,yes,no,on,off,1,0"},
    {"--benchmark_out_format", "console,json,csv"},
    {"--benchmark_time_unit", "ns,us,ms,s"},
};

void require_count(const std::string& flag, const std::string& value) {
  constexpr int kMost = 1'000'000;
  if (const int count = parse_number<int>(value).value_or(0); count < 1 || count > kMost)
    throw InvalidInput(fmt::format("{} is '{}', not a whole number from 1 to {}", flag, value, kMost));
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

std::shared_ptr<BenchmarkReporter> writer_of(const std::string& format) {
  if (format == "json") return std::make_shared<benchmark::JSONReporter>();
  if (format == "console") return std::make_shared<benchmark::ConsoleReporter>(benchmark::ConsoleReporter::OO_None);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the library offers it as a flag all the same
  return std::make_shared<benchmark::CSVReporter>();
#pragma GCC diagnostic pop
}

}  // namespace

BenchmarkFlags parse_benchmark_flags(const std::vector<std::string>& arguments) {
  BenchmarkFlags flags;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "true" : argument.substr(equals + 1);
    if (value.empty()) throw InvalidInput(flag + ": its value is empty; give one, or leave it out");
    for (const auto& [of, words] : kWords)
      if (flag == of && std::ranges::count(split_list(words), value) == 0)
        throw InvalidInput(fmt::format("{} is '{}', not one of {}", flag, value, fmt::join(split_list(words), ", ")));
    if (flag == "--benchmark_format") flags.format = value;
    if (flag == "--benchmark_out_format") flags.out_format = value;
    if (flag == "--benchmark_list_tests") flags.list_tests = std::ranges::count(split_list("true,yes,on,1"), value) > 0;
    if (flag == "--benchmark_out" && equals != std::string::npos) flags.out = value;
    if (flag == "--benchmark_filter" && equals != std::string::npos) flags.filter = value;
    if (flag == "--benchmark_repetitions") {
      require_count(flag, value);
      flags.repetitions = true;
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
  std::vector<char*> pointers = pointers_to(texts);
  int count = static_cast<int>(texts.size());
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) throw InvalidInput(not_a_benchmark_flag(pointers[1]));
}

GatheredReporter::GatheredReporter(std::string format, bool display) : format_(std::move(format)) {
  if (display)
    writer_ = {std::shared_ptr<void>(), benchmark::CreateDefaultDisplayReporter()};  // the library keeps it
  else
    writer_ = writer_of(format_);
}

bool GatheredReporter::ReportContext(const Context& context) {
  context_.emplace(context);
  return true;
}

void GatheredReporter::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs)
    std::erase_if(runs_.emplace_back(run).counters,
                  [](const auto& named) { return !std::isfinite(named.second.value); });
}

std::string GatheredReporter::text() {
  std::ostringstream out;
  writer_->SetOutputStream(&out);
  if (context_) writer_->ReportContext(*context_);
  if (!runs_.empty()) writer_->ReportRuns(runs_);
  writer_->Finalize();
  if (format_ == "json" && !nlohmann::json::accept(out.str()))
    throw std::runtime_error("Google Benchmark's JSON of this sweep is not valid JSON; it was not written");
  return out.str();
}

}  // namespace noisefloor
