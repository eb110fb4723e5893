// noisefloor run: one problem, given as text, on random data.
#include <fmt/format.h>

#include "bench/ceilings/store.h"
#include "bench/commands/commands.h"
#include "bench/counters/nvtx.h"
#include "bench/measure/build_info.h"
#include "bench/measure/case_runner.h"
#include "reports/roofline.h"

namespace noisefloor {
namespace {

struct RunArguments {
  std::string op, problem, variant = "all", dtype = "bf16", device, counters = "auto";
  std::uint64_t seed = 1;
  bool profile = false;
};

std::vector<Candidate> chosen_candidates(const Op& op, const std::string& name, bool host) {
  std::vector<Candidate> chosen;
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_of(op)) {
    names.push_back(candidate.name);
    if (name == candidate.name || (name == "all" && (candidate.kind == Kind::host) == host))
      chosen.push_back(candidate);
  }
  if (chosen.empty())
    throw InvalidInput(fmt::format("op '{}' has no variant '{}'; it has all, {}{}", op.name, name,
                                   fmt::join(names, ", "), did_you_mean(name, names)));
  return chosen;
}

// One verified launch, on cold caches, in an NVTX range named by the case and with nothing else in it: what a profiler
// wants. The timing's gate would wait for ever under a profiler that runs kernels one by one.
int profile(Platform& platform, const Op& op, const AnyProblem& problem, DType dtype,
            const std::vector<Candidate>& candidates, std::uint64_t seed) {
  Fixture fixture(platform, op, problem, dtype, seed);
  Verifier verifier(fixture);
  bool wrong = false;
  int launched = 0;
  for (const Candidate& candidate : candidates) {
    const Case test_case{candidate, problem, dtype, op.print(problem), ""};
    if (const auto row = refused(test_case, platform.description(), platform.arch_text())) {
      fmt::print("{}: {}: {}\n", candidate.name, to_string(row->status), row->reason);
      continue;
    }
    try {
      BoundCase bound(fixture, candidate);
      const Verdict verdict = verifier.verify(bound);
      wrong = wrong || !verdict.correct;
      platform.flush_cache();
      platform.synchronize();
      {
        const NvtxRange range(test_case.name());
        throw_if_failed(bound.launch()());
        platform.synchronize();
      }
      ++launched;
      fmt::print("{}: {}\n", test_case.name(), verdict.correct ? "launched" : "incorrect: " + verdict.reason);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::runtime_error& error) {  // a library that is missing or refuses, or memory
      fmt::print("{}: {}\n", candidate.name, error.what());
    }
  }
  return wrong ? kNotSo : launched > 0 ? kDone : kCouldNot;
}

int run(const RunArguments& arguments) {
  const Op& op = require_op(arguments.op);
  const DType dtype = require_dtype(op, arguments.dtype);
  const AnyProblem problem = op.parse(arguments.problem);
  const auto platform = open_platform(arguments.device);
  const PlatformDescription& description = platform->description();
  const auto candidates = chosen_candidates(op, arguments.variant, description.is_host);
  if (arguments.profile) return profile(*platform, op, problem, dtype, candidates, arguments.seed);
  const auto log = [](const std::string& message) { fmt::print(stderr, "{}\n", message); };
  const Ceilings ceilings =
      load_or_measure(description.is_host ? kHostDevice : description.index, false, build_info().commit, log);
  RunnerOptions options;
  options.seed = arguments.seed;
  options.counters = arguments.counters == "off"       ? CounterMode::off
                     : arguments.counters == "require" ? CounterMode::require
                                                       : CounterMode::automatic;
  CaseRunner runner(*platform, &ceilings, options);
  if (!runner.counter_message().empty()) fmt::print(stderr, "counters: {}\n", runner.counter_message());

  std::vector<SweepRow> rows;
  bool wrong = false, ran = false;
  for (const Candidate& candidate : candidates) {
    const Case test_case{candidate, problem, dtype, op.print(problem), ""};
    const CaseResult result = runner.run(test_case);
    if (!result.note.empty()) fmt::print(stderr, "{}: {}\n", candidate.name, result.note);
    rows.push_back(result.row);
    wrong = wrong || result.row.status == Outcome::incorrect || result.row.status == Outcome::cuda_error;
    ran = ran || result.row.status == Outcome::ok;
    if (result.device_lost) {
      fmt::print(stderr, "{} left the device unusable for this process; the variants behind it were not run\n",
                 candidate.name);
      break;
    }
  }
  fmt::print("{}", row_table(rows));
  for (const SweepRow& row : rows) {
    if (row.status != Outcome::ok) continue;
    fmt::print("{}: {:.4g} GFLOP/s, {:.4g} GB/s, max error {:.2g} (allowed {:.2g}), {} samples ({})", row.variant,
               *row.gflops, *row.gbps, *row.max_rel_error, *row.tolerance, *row.samples, row.stop);
    if (row.registers)
      fmt::print(", {} registers, {} B shared, {} B spilled, occupancy limit {:.0f} %", *row.registers, *row.smem_bytes,
                 *row.spill_bytes, row.occupancy_limit_pct.value_or(0));
    if (row.dram_read_bytes)
      fmt::print(", DRAM {:.4g} B read, {:.4g} B written", *row.dram_read_bytes, row.dram_write_bytes.value_or(0));
    if (row.sm_clock_mhz) fmt::print(", {:.0f} MHz, throttle {}", *row.sm_clock_mhz, row.throttle);
    fmt::print("\n");
  }
  return wrong ? kNotSo : ran ? kDone : kCouldNot;
}

}  // namespace

void add_run_command(CLI::App& app, CommandResult result) {
  CLI::App* command = app.add_subcommand("run", "Verify and time one problem, by one variant or all of them");
  auto arguments = std::make_shared<RunArguments>();
  command->add_option("op", arguments->op, "An op (noisefloor list ops)")->required();
  command->add_option("--problem", arguments->problem, "The problem as text, e.g. m=4096,n=4096,k=4096")->required();
  command->add_option("--variant", arguments->variant, "A variant or baseline, or 'all'")->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "bf16, fp16 or fp32")->capture_default_str();
  command->add_option("--device", arguments->device, "CUDA device number, or 'host' (default: 0 where there is one)");
  command->add_option("--seed", arguments->seed, "Of the random inputs")->capture_default_str();
  command->add_flag("--profile", arguments->profile,
                    "Time nothing: launch once, verified, in an NVTX range of the case's name");
  command->add_option("--counters", arguments->counters, "Hardware counters: off, auto or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  command->callback([=] { *result = [=] { return run(*arguments); }; });
}

}  // namespace noisefloor
