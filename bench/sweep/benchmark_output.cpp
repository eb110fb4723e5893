#include "bench/sweep/benchmark_output.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace noisefloor {
namespace {

using benchmark::BenchmarkReporter;

std::shared_ptr<BenchmarkReporter> writer_of(const std::string& format) {
  if (format == "json") return std::make_shared<benchmark::JSONReporter>();
  if (format == "console") return std::make_shared<benchmark::ConsoleReporter>(benchmark::ConsoleReporter::OO_None);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the library offers it as a flag all the same
  return std::make_shared<benchmark::CSVReporter>();
#pragma GCC diagnostic pop
}

}  // namespace

GatheredReporter::GatheredReporter(std::shared_ptr<BenchmarkReporter> writer, std::string format)
    : writer_(std::move(writer)), format_(std::move(format)) {}

std::unique_ptr<GatheredReporter> GatheredReporter::display(const std::string& format) {
  // The library keeps its own, which knows of --benchmark_color and --benchmark_counters_tabular.
  const std::shared_ptr<BenchmarkReporter> of_library(std::shared_ptr<void>(),
                                                      benchmark::CreateDefaultDisplayReporter());
  return std::unique_ptr<GatheredReporter>(new GatheredReporter(of_library, format));
}

std::unique_ptr<GatheredReporter> GatheredReporter::file(const std::string& format) {
  return std::unique_ptr<GatheredReporter>(new GatheredReporter(writer_of(format), format));
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
