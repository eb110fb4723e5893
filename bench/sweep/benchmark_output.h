// What Google Benchmark's reporters say of a sweep, gathered as one text: it is written whole at the end, or not at
// all.
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace noisefloor {

// Hands everything on to one of the library's reporters at the end. A counter that was not measured is not a number
// inside and is left out: JSON has no NaN, and the CSV reporter needs all names of counters at once.
class GatheredReporter final : public benchmark::BenchmarkReporter {
 public:
  // "json", "csv" or "console". `display`: as --benchmark_format and its colours say.
  static std::unique_ptr<GatheredReporter> display(const std::string& format);
  static std::unique_ptr<GatheredReporter> file(const std::string& format);

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

  // After the last run. Throws std::runtime_error where it should be JSON and no parser would read it.
  std::string text();

 private:
  GatheredReporter(std::shared_ptr<benchmark::BenchmarkReporter> writer, std::string format);

  std::shared_ptr<benchmark::BenchmarkReporter> writer_;
  std::string format_;
  std::optional<Context> context_;
  std::vector<Run> runs_;
};

}  // namespace noisefloor
