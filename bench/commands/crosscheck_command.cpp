// noisefloor crosscheck: a case's row beside what Nsight Compute says of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "bench/ceilings/store.h"
#include "bench/commands/add_command.h"
#include "bench/counters/range_profiler.h"
#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/worker.h"
#include "bench/platform/build_info.h"
#include "reports/gate/crosscheck.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

struct CrosscheckArguments {
  std::string name, report, run, device;
};

// By its name alone: a run folder may hold rows that this build could not make (a vendor's, PyTorch's).
SweepRow row_of_run(const std::filesystem::path& folder, const std::string& name) {
  const auto file = folder / "sweep.csv";
  if (!std::filesystem::is_regular_file(file)) throw InvalidInput(folder.string() + ": no sweep.csv there");
  for (const SweepRow& row : read_sweep_csv(file))
    if (row.name() == name) return row;
  throw InvalidInput(fmt::format("{}: no row of {} (op/problem/dtype/variant)", file.string(), name));
}

// What CUPTI, in this process and behind the harness's own flush, gives as the duration that ncu gives; and the time
// between the events of a sample that has no kernel. They tell apart the two ways in which the times may differ.
void print_between(Platform& platform, const Case& test_case) {
  Fixture fixture(platform, *test_case.entry, test_case.problem, test_case.dtype, RunnerOptions{}.seed);
  BoundCase bound(fixture, *test_case.implementation);
  const Launch launch = bound.launch();
  constexpr int kSamples = 15;
  const double events_us = median(platform.time_cold([] { return success(); }, kSamples, bound.resident()));
  try {
    const std::array wanted = {metric("gpu_time"), metric("sm_clock")};
    RangeProfiler profiler(wanted);
    std::vector<double> samples, mhz;
    for (int i = 0; i < kSamples; ++i) {
      const auto counted = profiler.measure(
          [&](int) {
            fixture.reset_outputs();
            platform.flush_cache();
          },
          [&] { throw_if_failed(launch()); });
      samples.push_back(1e-3 * counted.at("gpu_time"));
      mhz.push_back(1e-6 * counted.at("sm_clock"));
    }
    fmt::print(
        "gpu__time_duration by CUPTI behind the harness's flush: {:.2f} us (median of {}, {:.2f} to {:.2f}) at "
        "{:.0f} MHz; the harness's events alone: {:.2f} us\n",
        median(samples), kSamples, *std::min_element(samples.begin(), samples.end()),
        *std::max_element(samples.begin(), samples.end()), median(mhz), events_us);
  } catch (const CountersUnavailable& error) {
    fmt::print(stderr, "counters: {}\n", error.what());
  }
}

int crosscheck_case(const CrosscheckArguments& arguments) {
  if (!arguments.run.empty() && !arguments.device.empty())
    throw InvalidInput("--device is for a row that is measured now; with --run it is read");
  const auto launches = read_ncu_csv(arguments.report);
  SweepRow row;
  std::optional<double> launch_mhz;  // a run folder has none
  if (!arguments.run.empty()) {
    row = row_of_run(arguments.run, arguments.name);
  } else {
    const Case test_case = require_case(arguments.name);
    const auto platform = open_platform(arguments.device);
    const auto log = [](const std::string& message) { fmt::print(stderr, "{}\n", message); };
    const int index = platform->description().is_host ? kHostDevice : platform->description().index;
    const Ceilings ceilings = load_or_measure(index, false, build_info().commit, log);  // they say what bounds the row
    RunnerOptions options;
    options.clock_in_launches = true;
    const auto neighbour = neighbour_of(*platform);
    options.neighbour = neighbour.get();
    CaseRunner runner(*platform, &ceilings, options);
    const CaseResult result = runner.run(test_case);
    if (!runner.counter_message().empty()) fmt::print(stderr, "counters: {}\n", runner.counter_message());
    row = result.row;
    if (!result.launch_mhz.empty()) launch_mhz = median(result.launch_mhz);
    if (row.status == Outcome::ok && !platform->description().is_host) print_between(*platform, test_case);
  }
  const auto lines = crosscheck(row, launches, launch_mhz);
  fmt::print("{}\n{}", row.name(), crosscheck_table(lines));
  for (const NcuLaunch& launch : launches) fmt::print("kernel: {} ({:.2f} us)\n", launch.kernel, launch.time_us);
  using Verdict = CrosscheckLine::Verdict;
  const auto has = [&](Verdict verdict) {
    return std::any_of(lines.begin(), lines.end(), [&](const CrosscheckLine& line) { return line.verdict == verdict; });
  };
  if (has(Verdict::differs)) return kNotSo;
  if (!has(Verdict::agrees)) throw std::runtime_error("nothing could be judged: the last column says why");
  return kDone;
}

}  // namespace

void add_crosscheck_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "crosscheck", "Compare the row of a case with Nsight Compute's report", crosscheck_case);
  command.add_option("case", arguments.name, "op/problem/dtype/variant, as --benchmark_list_tests prints it")
      ->required();
  command.add_option("--report", arguments.report, "ncu's raw page as CSV, which scripts/ncu writes beside its report")
      ->required();
  command.add_option("--run", arguments.run, "Run folder with the case's row (default: measure it now)");
  command.add_option("--device", arguments.device, "CUDA device number (default: 0)");
  const CrosscheckLimits limits;
  command.footer(
      fmt::format("Limits: time {:g} % (of kernels of {:g} us and more), DRAM bytes {:g} % or {:g} MB, occupancy {:g} "
                  "points (not of baselines).\nTimes are compared at equal clocks if the row is bound by compute and "
                  "measured now, and its SM clock during launches\nis more than {:g} % from ncu's.\nExit code: 0 all "
                  "that could be judged agrees, 1 something does not, 2 nothing could be judged.",
                  limits.time_pct, limits.shortest_us, limits.bytes_pct, limits.bytes * 1e-6, limits.occupancy_points,
                  limits.clock_pct));
}

}  // namespace noisefloor
