// noisefloor run: one problem, given as text or by a user's tensors.
#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "bench/ceilings/ceilings.h"
#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/counters/nvtx.h"
#include "bench/measure/bound_case.h"
#include "bench/measure/case_result.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/worker.h"
#include "bench/platform/build_info.h"
#include "bench/platform/console.h"
#include "bench/sweep/workers.h"
#include "bench/tensors/user_tensors.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

struct RunArguments {
  std::string op, problem, variant, dtype, device, counters = "auto", input, output, random;
  std::string seed = "1";
  bool profile = false;
  std::vector<std::string> plugins;
};

// What is to be run, and on what.
struct Task {
  const SuiteEntry* entry = nullptr;
  AnyProblem problem;
  DType dtype = DType::bf16;
  std::vector<ImplementationPtr> implementations;
  GivenTensors given;
  std::vector<std::vector<std::byte>> bytes;  // of `given`
  std::uint64_t seed = 1;

  Case case_of(const ImplementationPtr& implementation) const {
    return {entry, implementation, problem, dtype, entry->workload->print(problem)};
  }
};

std::vector<ImplementationPtr> all_implementations(const SuiteEntry& entry, bool host) {
  std::vector<ImplementationPtr> all = entry.implementations;
  std::erase_if(all, [&](const ImplementationPtr& one) { return !one->runs_on_platform(host) || one->in_worker; });
  return all;
}

// One verified launch, on cold caches, in an NVTX range named by the case and with nothing else in it: what a profiler
// wants. The timing's gate would wait for ever under a profiler that runs kernels one by one.
int profile(Platform& platform, const Task& task) {
  Fixture fixture(platform, *task.entry, task.problem, task.dtype, task.seed, task.given);
  Verifier verifier(fixture);
  bool wrong = false;
  int launched = 0;
  for (const ImplementationPtr& implementation : task.implementations) {
    const Case test_case = task.case_of(implementation);
    if (const auto row = refused(test_case, platform.description(), platform.arch_text())) {
      fmt::print("{}: {}: {}\n", implementation->name, to_string(row->status), row->reason);
      continue;
    }
    try {
      BoundCase bound(fixture, *implementation, &verifier);
      const Verdict verdict = verifier.verify(bound);
      wrong = wrong || !verdict.correct();
      platform.flush_cache();
      platform.synchronize();
      {
        const NvtxRange range(test_case.id().name());
        throw_if_failed(bound.launch()());
        platform.synchronize();
      }
      ++launched;
      fmt::print("{}: {}\n", test_case.id().name(), verdict.correct() ? "launched" : "incorrect: " + verdict.reason);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::runtime_error& error) {  // a library that is missing or refuses, or memory
      fmt::print("{}: {}\n", implementation->name, error.what());
    }
  }
  return wrong ? kNotSo : launched > 0 ? kDone : kCouldNot;
}

// The outputs that --output writes: those of the fastest variant that is right, or of the fastest baseline where none
// of ours is.
class Outputs {
 public:
  void take(Fixture& fixture) { latest_ = download_outputs(fixture); }
  void settle(const Case& test_case, const CaseResult& result) {
    const bool right = result.row.status == Outcome::ok || result.row.status == Outcome::throttled;
    // What is throttled has no time: it is taken where there is nothing else.
    const std::pair rank{test_case.implementation->is(Kind::baseline),
                         result.row.time_cold_us.value_or(std::numeric_limits<double>::infinity())};
    if (!right || latest_.tensors.empty() || (kept_ && rank >= rank_)) return;
    rank_ = rank;
    kept_ = test_case;
    best_ = std::exchange(latest_, {});
  }
  // Prints what became of the file.
  void write(OutputFiles& files, const std::string& path) const {
    if (!kept_) {
      fmt::print(stderr, "{} is not written: no variant gave a right output\n", path);
      return;
    }
    files.write("--output", [&](const fs::path& place) {
      write_safetensors(place, best_.tensors,
                        {{"op", kept_->entry->name()},
                         {"problem", kept_->text},
                         {"dtype", to_string(kept_->dtype)},
                         {"variant", kept_->implementation->name},
                         {kLayoutKey, kChannelsLast},
                         {"noisefloor", fmt::format("{} {}", build_info().version, build_info().commit)}});
    });
    files.commit();
    fmt::print("{}: the output of {}", path, kept_->implementation->name);
    for (const FileTensor& tensor : best_.tensors) fmt::print(", {} {}", tensor.name, tensor.text());
    fmt::print("\n");
  }

 private:
  OutputTensors latest_, best_;
  std::optional<Case> kept_;      // of `best_`
  std::pair<bool, double> rank_;  // of the case: whether it is a baseline, and its time
};

// Of PyTorch's rows and plugins', whose tensors are not this process's.
void require_no_files(const RunArguments& arguments, const Task& task) {
  if (arguments.input.empty() && arguments.output.empty() && !arguments.profile) return;
  if (!arguments.plugins.empty())
    throw InvalidInput("a plugin runs in a process of its own: leave out --input, --output and --profile");
  if (task.implementations.size() == 1 && task.implementations.front()->in_worker)
    throw refusal("{} runs in PyTorch, on tensors of its own: leave out --input, --output and --profile",
                  task.implementations.front()->name);
}

// A case, op/problem/dtype/variant, as the options that it stands for.
RunArguments without_case(RunArguments arguments) {
  if (arguments.op.find('/') == std::string::npos) return arguments;
  if (!arguments.problem.empty() || !arguments.variant.empty() || !arguments.dtype.empty() || !arguments.input.empty())
    throw InvalidInput("a case names problem, dtype and variant: leave out --problem, --dtype, --variant and --input");
  const CaseId id = CaseId::parse(arguments.op);
  arguments.op = id.op;
  arguments.problem = id.problem;
  arguments.dtype = id.dtype;
  arguments.variant = id.variant;
  return arguments;
}

// Implementations are left out where all of the platform's are to run.
Task task_of(const RunArguments& arguments) {
  Task task;
  task.seed = require_seed(arguments.seed);
  task.entry = &require_op(arguments.op);
  const Workload& workload = *task.entry->workload;
  if (!arguments.variant.empty() && arguments.variant != "all")
    task.implementations = {require_implementation(*task.entry, arguments.variant)};
  std::optional<DType> dtype;
  if (!arguments.dtype.empty()) dtype = require_dtype(workload, arguments.dtype);
  if (arguments.input.empty()) {
    if (arguments.problem.empty()) throw InvalidInput("give --problem, or --input with the tensors");
    if (!arguments.random.empty()) throw InvalidInput("--random names inputs that --input lacks; there is no --input");
    task.problem = workload.parse(arguments.problem);
    task.dtype = dtype.value_or(workload.dtypes.front());
    return task;
  }
  const SafetensorsFile file(arguments.input);
  UserTensors user = bind_user_tensors(workload, file, arguments.input, split_problem_text(arguments.problem), dtype,
                                       split_list(arguments.random));
  task.problem = user.problem;
  task.dtype = user.dtype;
  task.given = std::move(user.given);
  task.bytes = std::move(user.bytes);
  fmt::print(stderr, "{}: {} {}, {}\n", arguments.input, workload.name, workload.print(task.problem),
             to_string(task.dtype));
  return task;
}

void print_details(const CaseResult& result) {
  const SweepRow& row = result.row;
  if (!row.tolerance) return;  // nothing ran
  fmt::print("{}: max error {:.2g} (allowed {:.2g}), relative L2 error {:.2g} (allowed {:.2g})", row.variant,
             result.verdict.max_rel_error, result.verdict.tolerance, result.verdict.l2_error,
             result.verdict.l2_tolerance);
  if (row.status == Outcome::ok)
    fmt::print(", {:.4g} GFLOP/s, {:.4g} GB/s, {} samples ({})", *row.gflops, *row.gbps, *row.samples, row.stop);
  if (row.registers)
    fmt::print(", {} registers, {} B shared, {} B spilled, occupancy limit {:.0f} %", *row.registers, *row.smem_bytes,
               *row.spill_bytes, row.occupancy_limit_pct.value_or(0));
  if (row.dram_read_bytes)
    fmt::print(", DRAM {:.4g} B read, {:.4g} B written", *row.dram_read_bytes, row.dram_write_bytes.value_or(0));
  if (row.sm_clock_mhz) fmt::print(", {:.0f} MHz, throttle {}", *row.sm_clock_mhz, row.throttle);
  fmt::print("\n");
}

int run(const RunArguments& given) {
  const RunArguments arguments = without_case(given);
  add_plugins(arguments.plugins, arguments.device);
  if (arguments.profile && !arguments.output.empty())
    throw InvalidInput("--profile launches for a profiler and writes no --output");
  OutputFiles files;
  files.add_input("--input", arguments.input);
  files.add("--output", arguments.output);
  Task task = task_of(arguments);  // what is wrong with the arguments is said before a device is looked for
  require_no_files(arguments, task);
  const auto platform = open_platform(arguments.device);
  const PlatformDescription& description = platform->description();
  if (task.implementations.empty()) task.implementations = all_implementations(*task.entry, description.is_host);
  if (arguments.profile) return profile(*platform, task);
  Ceilings ceilings =
      load_or_measure(description.is_host ? kHostDevice : description.index, false, build_info().commit, say_line);
  Outputs outputs;
  RunnerOptions options;
  options.seed = task.seed;
  options.given = task.given;
  options.say = say_line;
  if (description.is_host)
    options.raise_ceilings = [&] { ceilings = raise_host_ceilings(ceilings, build_info().commit, say_line); };
  if (!arguments.output.empty()) options.on_verified = [&](const Case&, Fixture& fixture) { outputs.take(fixture); };
  options.counters = parse_counter_mode(arguments.counters);
  std::unique_ptr<Worker> pytorch;
  if (!description.is_host && task.implementations.front()->in_worker)
    pytorch = start_pytorch(description.index, false);
  options.worker = pytorch.get();
  const auto neighbour = neighbour_of(*platform);
  options.neighbour = neighbour.get();
  CaseRunner runner(*platform, &ceilings, options);
  if (!runner.counter_message().empty()) fmt::print(stderr, "counters: {}\n", runner.counter_message());

  std::vector<SweepRow> rows;
  std::vector<CaseResult> results;
  bool wrong = false, ran = false;
  for (const ImplementationPtr& implementation : task.implementations) {
    const Case test_case = task.case_of(implementation);
    results.push_back(runner.run(test_case));
    const CaseResult& result = results.back();
    if (!result.note.empty()) fmt::print(stderr, "{}: {}\n", implementation->name, result.note);
    rows.push_back(result.row);
    outputs.settle(test_case, result);
    wrong = wrong || is_failure(result.row);
    ran = ran || result.row.status == Outcome::ok;
    if (result.device_lost) {
      fmt::print(stderr, "{} left the device unusable for this process; the variants behind it were not run\n",
                 implementation->name);
      break;
    }
  }
  fmt::print("{}", row_table(rows));
  for (const CaseResult& result : results) print_details(result);
  if (!arguments.output.empty()) outputs.write(files, arguments.output);
  return wrong ? kNotSo : ran ? kDone : kCouldNot;
}

}  // namespace

void add_run_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "run", "Verify and time one problem, by one variant or all of them", run);
  command.add_option("op", arguments.op, "An op (noisefloor list ops), or a case: op/problem/dtype/variant")
      ->required();
  add_plugin_option(command, arguments.plugins);
  command.add_option(
      "--problem", arguments.problem,
      "The problem as text, e.g. m=4096,n=4096,k=4096; with --input, the fields that the tensors do not give");
  command.add_option("--variant", arguments.variant, "A variant or baseline, or 'all' except PyTorch's (default: all)");
  command.add_option("--dtype", arguments.dtype, "bf16, fp16 or fp32 (default: bf16, or that of --input)");
  command.add_option("--input", arguments.input,
                     "Safetensors file of the op's inputs, channels-last; it gives the problem and the dtype");
  command.add_option("--random", arguments.random,
                     "Inputs that --input lacks, comma-separated; they are drawn at random");
  add_output_file(
      command, "--output", arguments.output,
      "Safetensors file for the outputs, channels-last, of our fastest correct variant, else of a baseline");
  add_device_option(command, arguments.device);
  command.add_option("--seed", arguments.seed, "Seed of the random inputs")->capture_default_str();
  command.add_flag("--profile", arguments.profile,
                   "Time nothing: verify, and launch once in an NVTX range named as the case");
  add_counters_option(command, arguments.counters);
  command.footer(
      "Outputs are compared with the op's oracle. The tolerance is for the harness's own inputs (normal numbers). Data "
      "whose\nsums cancel more can exceed it by rounding alone; the printed errors say by how much.");
}

}  // namespace noisefloor
